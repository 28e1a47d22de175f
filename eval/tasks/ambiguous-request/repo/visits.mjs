/** Visits as the branches send them, in no order. */
export function report(visits) {
  return visits.map((visit) => `${visit.date} ${visit.branch}`);
}
