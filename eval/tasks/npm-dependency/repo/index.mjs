/** Returns the address of a post. */
export function address(post) {
  return `/${post.year}/${slug(post.title)}`;
}

function slug(title) {
  return title.toLowerCase().replace(/\s+/g, '-');
}
