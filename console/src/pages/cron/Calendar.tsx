import { Alert, Button, Group, SegmentedControl } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { serverNow } from "@/api/connection";
import { type CalendarEntry, calendarQuery } from "@/api/cron";
import { visible } from "@/parts/format";
import { Page, Section } from "@/parts/Page";
import { Loaded } from "@/parts/States";
import { toneOf } from "@/parts/Status";
import { t } from "@/texts";
import { LOCALES } from "@/texts/locale";
import { beginOf, dateOf, dayOf, daysOf, plusDays, plusMonths } from "./days";

const TIME = new Intl.DateTimeFormat([...LOCALES], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat([...LOCALES], { weekday: "short", day: "numeric", month: "short" });
const MONTH = new Intl.DateTimeFormat([...LOCALES], { month: "long", year: "numeric" });
// Entries of a day in the view of a month.
const SHOWN = 4;

/** Runs of cron jobs and starts of sessions, by week or by month. */
export function Calendar() {
  const search = useSearch({ from: "/calendar" });
  const navigate = useNavigate();
  const today = dayOf(new Date(serverNow()));
  const view = search.view ?? "week";
  const day = search.day ?? today;
  const days = daysOf(view, day);
  const first = days[0] ?? day;
  const end = plusDays(days[days.length - 1] ?? day, 1);
  const calendar = useQuery({
    ...calendarQuery(beginOf(first), beginOf(end)),
    placeholderData: keepPreviousData,
  });
  const go = (to: string | undefined, as: "week" | "month" = view) =>
    void navigate({
      to: "/calendar",
      search: { view: as === "month" ? "month" : undefined, day: to === today ? undefined : to },
    });
  const by = (step: number) => (view === "week" ? plusDays(day, 7 * step) : plusMonths(day, step));
  const period =
    view === "month" ? MONTH.format(dateOf(day)) : DAY.formatRange(dateOf(first), dateOf(plusDays(end, -1)));
  return (
    <Page title={t("nav.calendar")} lead={t("calendar.lead")}>
      <Section
        title={period}
        actions={
          <Group gap="xs">
            <SegmentedControl
              size="xs"
              aria-label={t("calendar.view")}
              value={view}
              onChange={(chosen) => go(search.day, chosen as "week" | "month")}
              data={[
                { value: "week", label: t("calendar.week") },
                { value: "month", label: t("calendar.month") },
              ]}
            />
            <Button size="xs" variant="default" onClick={() => go(by(-1))}>
              {t("calendar.previous")}
            </Button>
            <Button size="xs" variant="default" onClick={() => go(undefined)}>
              {t("calendar.today")}
            </Button>
            <Button size="xs" variant="default" onClick={() => go(by(1))}>
              {t("calendar.next")}
            </Button>
          </Group>
        }
      >
        <Loaded query={calendar} height={400}>
          {(found) => (
            <>
              {found.complete ? null : <Alert color="yellow">{t("calendar.incomplete")}</Alert>}
              <Grid days={days} entries={found.entries} view={view} today={today} month={day.slice(0, 7)} />
            </>
          )}
        </Loaded>
      </Section>
    </Page>
  );
}

function Grid({
  days,
  entries,
  view,
  today,
  month,
}: {
  days: string[];
  entries: CalendarEntry[];
  view: "week" | "month";
  today: string;
  month: string;
}) {
  const byDay = new Map<string, CalendarEntry[]>();
  for (const entry of entries) {
    const day = dayOf(new Date(entry.at));
    byDay.set(day, [...(byDay.get(day) ?? []), entry]);
  }
  return (
    <ol className="calendar" data-view={view}>
      {days.map((day) => {
        const found = byDay.get(day) ?? [];
        const shown = view === "month" ? found.slice(0, SHOWN) : found;
        return (
          <li
            key={day}
            className="calendar-day"
            data-today={day === today || undefined}
            data-outside={(view === "month" && !day.startsWith(month)) || undefined}
            data-empty={found.length === 0 || undefined}
          >
            <div className="calendar-date">
              <time dateTime={day}>{DAY.format(dateOf(day))}</time>
            </div>
            {shown.map((entry) => (
              <Entry key={`${entry.kind}${entry.ref}${entry.at}${entry.state}`} entry={entry} />
            ))}
            {found.length > shown.length ? (
              <Link className="link" to="/calendar" search={{ day }}>
                {t("calendar.more", { count: found.length - shown.length })}
              </Link>
            ) : null}
          </li>
        );
      })}
    </ol>
  );
}

/** What an entry is, in one word. */
function wordOf(entry: CalendarEntry): string {
  return entry.kind === "run" ? (entry.state ? t(`status.${entry.state}`) : "") : t(`calendar.${entry.kind}`);
}

function Entry({ entry }: { entry: CalendarEntry }) {
  const tone =
    entry.kind === "run" && entry.state ? toneOf(entry.state) : entry.kind === "coming" ? "off" : "wait";
  const count = entry.count ?? 1;
  const text = (
    <>
      <span className="mono">{TIME.format(new Date(entry.at))}</span> {visible(entry.name)}
    </>
  );
  return (
    <div className="calendar-entry" data-tone={tone} data-kind={entry.kind}>
      <Target entry={entry}>{text}</Target>
      <div className="calendar-word">
        {wordOf(entry)}
        {count > 1 ? ` · ${t("calendar.many", { count })}` : ""}
      </div>
    </div>
  );
}

/** A run leads to its session or pipeline, everything else to what it is about. */
function Target({ entry, children }: { entry: CalendarEntry; children: React.ReactNode }) {
  if (entry.kind === "session" || entry.kind === "expected") {
    return (
      <Link to="/sessions/$ref" params={{ ref: entry.ref }} className="link">
        {children}
      </Link>
    );
  }
  if (entry.pipeline_id && (entry.count ?? 1) === 1) {
    return (
      <Link to="/pipelines/$ref" params={{ ref: entry.pipeline_id }} className="link">
        {children}
      </Link>
    );
  }
  if (entry.session_id && (entry.count ?? 1) === 1) {
    return (
      <Link to="/sessions/$ref" params={{ ref: entry.session_id }} className="link">
        {children}
      </Link>
    );
  }
  return (
    <Link to="/cron-jobs/$ref" params={{ ref: entry.ref }} className="link">
      {children}
    </Link>
  );
}
