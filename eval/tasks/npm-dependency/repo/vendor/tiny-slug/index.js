/** Turns a text into a slug: Latin letters without accents, digits and single dashes. */
export default function slug(text, { separator = '-' } = {}) {
  const plain = text.normalize('NFKD').replace(/[\u0300-\u036f]/g, '').replace(/ß/g, 'ss').toLowerCase();
  return plain.replace(/[^a-z0-9]+/g, ' ').trim().replaceAll(' ', separator);
}
