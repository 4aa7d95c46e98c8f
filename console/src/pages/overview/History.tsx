/** Occupancy over time. */
export function History() {
  return null;
}
