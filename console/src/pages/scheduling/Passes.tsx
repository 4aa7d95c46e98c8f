import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, type Schemas, unwrap } from "@/api/client";
import { Opener } from "@/parts/actions";
import { type Column, DataTable } from "@/parts/DataTable";
import { Dialog } from "@/parts/FormDialog";
import { reasonText, visible } from "@/parts/format";
import { Empty, Loaded } from "@/parts/States";
import { Age } from "@/parts/Time";
import { t } from "@/texts";

type Pass = Schemas["PassView"];

// An answer may have no passes although older ones match: so many are asked for before a page is shown.
const MOST_ANSWERS = 10;

interface Asked {
  group: string;
  session?: string;
}

interface Place {
  from: string;
  to: string;
  cursor?: string;
}

async function nextPage(asked: Asked, place: Place): Promise<{ items: Pass[]; place: Place | undefined }> {
  let cursor = place.cursor;
  for (let answers = 1; ; answers += 1) {
    const query = { ...asked, from: place.from, to: place.to, limit: 50, ...(cursor ? { cursor } : {}) };
    const page = await unwrap(api.GET("/v1/scheduler/passes", { params: { query } }));
    cursor = page.next ?? undefined;
    if (page.items.length > 0 || !cursor || answers === MOST_ANSWERS) {
      return { items: page.items, place: cursor ? { ...place, cursor } : undefined };
    }
  }
}

export function usePasses(key: unknown, asked: Asked, first: () => Place) {
  const query = useInfiniteQuery({
    queryKey: ["scheduler-passes", asked, key],
    queryFn: ({ pageParam }) => nextPage(asked, pageParam ?? first()),
    initialPageParam: undefined as Place | undefined,
    getNextPageParam: (page) => page.place,
  });
  const more = query.hasNextPage
    ? { load: () => void query.fetchNextPage(), loading: query.isFetchingNextPage }
    : undefined;
  return { query, rows: query.data?.pages.flatMap((page) => page.items) ?? [], more };
}

const at: Column<Pass> = { key: "at", header: t("field.at"), cell: (pass) => <Age at={pass.at} /> };
const pending: Column<Pass> = {
  key: "pending",
  header: t("field.waiting"),
  right: true,
  cell: (pass) => pass.pending,
};
const reasons: Column<Pass> = {
  key: "held",
  header: t("scheduler.held"),
  cell: (pass) => reasonsOf(pass) || "–",
};
const details: Column<Pass> = {
  key: "details",
  header: t("field.action"),
  cell: (pass) => <Details pass={pass} />,
};

export const COLUMNS: Column<Pass>[] = [
  at,
  {
    key: "duration",
    header: t("scheduler.duration"),
    right: true,
    wide: true,
    cell: (pass) => t("scheduler.ms", { ms: pass.duration_ms.toFixed(1) }),
  },
  pending,
  { key: "placed", header: t("scheduler.placed"), right: true, cell: (pass) => pass.placed },
  {
    key: "preempted",
    header: t("scheduler.preempted"),
    right: true,
    wide: true,
    cell: (pass) => pass.preempted.length,
  },
  {
    key: "idle",
    header: t("scheduler.idle"),
    right: true,
    wide: true,
    cell: (pass) => pass.idle_passes_before,
  },
  reasons,
  details,
];

export const OF_SESSION: Column<Pass>[] = [
  at,
  {
    key: "outcome",
    header: t("scheduler.outcome"),
    cell: (pass) => (pass.session ? t(`scheduler.${pass.session}`) : "–"),
  },
  pending,
  reasons,
  details,
];

const reasonsOf = (pass: Pass) =>
  Object.entries(pass.held)
    .sort(([, a], [, b]) => b - a)
    .map(([reason, count]) => t("scheduler.reason", { number: count, reason: visible(reasonText(reason)) }))
    .join(", ");

/** The passes as a table, which loads older ones. */
export function Passes({
  query,
  rows,
  more,
  columns,
}: {
  query: ReturnType<typeof usePasses>["query"];
  rows: Pass[];
  more: { load: () => void; loading: boolean } | undefined;
  columns: Column<Pass>[];
}) {
  return (
    <Loaded query={query as never}>
      {() => (
        <DataTable<Pass>
          label={t("scheduler.title")}
          rows={rows}
          id={(pass) => pass.at}
          empty={more ? undefined : <Empty title={t("scheduler.empty")}>{t("scheduler.emptyText")}</Empty>}
          columns={columns}
          more={more}
        />
      )}
    </Loaded>
  );
}

function Details({ pass }: { pass: Pass }) {
  return (
    <Opener
      label={t("scheduler.show")}
      dialog={(close) => (
        <Dialog title={t("scheduler.pass")} size="lg" close={close}>
          <p>
            <Age at={pass.at} /> · {t("scheduler.ms", { ms: pass.duration_ms.toFixed(1) })}
          </p>
          {pass.not_recorded_before ? (
            <p>{t("scheduler.missing", { count: pass.not_recorded_before })}</p>
          ) : null}
          <h3 className="part-title">{t("scheduler.placed")}</h3>
          <DataTable
            label={t("scheduler.placed")}
            rows={pass.places}
            id={(place) => place.session_id}
            empty={<p className="dim">{t("scheduler.none")}</p>}
            columns={[
              {
                key: "session",
                header: t("field.session"),
                cell: (place) => <Session id={place.session_id} />,
              },
              { key: "agents", header: t("nav.agents"), cell: (place) => visible(place.agents.join(", ")) },
            ]}
          />
          <h3 className="part-title">{t("scheduler.preempted")}</h3>
          <DataTable
            label={t("scheduler.preempted")}
            rows={pass.preempted}
            id={(victim) => victim.session_id}
            empty={<p className="dim">{t("scheduler.none")}</p>}
            columns={[
              {
                key: "session",
                header: t("field.session"),
                cell: (victim) => <Session id={victim.session_id} />,
              },
              {
                key: "for",
                header: t("scheduler.for"),
                cell: (victim) => <Session id={victim.for_session} />,
              },
            ]}
          />
          <h3 className="part-title">{t("scheduler.held")}</h3>
          <p>{reasonsOf(pass) || t("scheduler.none")}</p>
          <p className="dim">{t("scheduler.idleBefore", { count: pass.idle_passes_before })}</p>
        </Dialog>
      )}
    />
  );
}

function Session({ id }: { id: string }) {
  return (
    <Link to="/sessions/$ref" params={{ ref: id }} className="link wrap">
      {id}
    </Link>
  );
}
