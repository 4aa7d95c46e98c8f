/** Days as the browser's calendar has them, as `YYYY-MM-DD`. */
export const dayOf = (date: Date) =>
  `${date.getFullYear()}-${String(date.getMonth() + 1).padStart(2, "0")}-${String(date.getDate()).padStart(2, "0")}`;

/** Noon, because some days have no midnight. */
export const dateOf = (day: string) => new Date(`${day}T12:00:00`);

export function plusDays(day: string, days: number): string {
  const date = dateOf(day);
  date.setDate(date.getDate() + days);
  return dayOf(date);
}

export function plusMonths(day: string, months: number): string {
  const date = dateOf(day);
  date.setDate(1);
  date.setMonth(date.getMonth() + months);
  return dayOf(date);
}

const monday = (day: string) => plusDays(day, -((dateOf(day).getDay() + 6) % 7));

/** The days that a view shows: the week of a day, or the whole weeks of its month. */
export function daysOf(view: "week" | "month", day: string): string[] {
  if (view === "week") {
    const first = monday(day);
    return Array.from({ length: 7 }, (_, index) => plusDays(first, index));
  }
  const first = monday(`${day.slice(0, 7)}-01`);
  const end = plusMonths(day, 1);
  const days: string[] = [];
  for (let next = first; next < end || days.length % 7 !== 0; next = plusDays(next, 1)) {
    days.push(next);
  }
  return days;
}

/** The begin of a day, as the manager takes it. */
export const beginOf = (day: string) => new Date(`${day}T00:00:00`).toISOString();
