import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, memo, useRef, useState } from "react";
import type { Pipeline, PipelineStep } from "@/api/client";
import { visible } from "@/parts/format";
import { Section } from "@/parts/Page";
import { t } from "@/texts";
import { Counts } from "./Counts";

/** The arrays of a pipeline, each as a grid of its elements by state. An element leads to its session. */
export function Arrays({ pipeline }: { pipeline: Pipeline }) {
  return (pipeline.arrays ?? []).map((array) => (
    <Section key={array.step} title={`${visible(array.step)} [${visible(array.array)}]`}>
      <Counts counts={array.counts} />
      <Grid
        label={t("pipeline.elementsOf", { step: visible(array.step) })}
        elements={(pipeline.steps ?? []).filter((step) => step.name === array.step)}
      />
    </Section>
  ));
}

function Grid({ label, elements }: { label: string; elements: PipelineStep[] }) {
  const box = useRef<HTMLDivElement>(null);
  const navigate = useNavigate();
  const [at, setAt] = useState(0);
  const open = (element?: PipelineStep) =>
    element && void navigate({ to: "/sessions/$ref", params: { ref: element.session_id } });
  const move = (event: KeyboardEvent) => {
    const to = at + stepOf(event.key, box.current);
    if (to !== at && elements[to]) {
      event.preventDefault();
      setAt(to);
      box.current?.querySelector<HTMLElement>(`[data-at="${to}"]`)?.focus();
    }
  };
  return (
    <div
      ref={box}
      className="elements"
      role="group"
      aria-label={label}
      onKeyDown={move}
      onClick={(event) => {
        const cell = (event.target as Element).closest<HTMLElement>("[data-at]");
        open(elements[Number(cell?.dataset.at ?? -1)]);
      }}
    >
      {elements.map((element, place) => (
        <Cell
          key={element.index}
          index={element.index ?? 0}
          state={element.state}
          exit={element.exit_code ?? null}
          place={place}
          current={place === at}
        />
      ))}
    </div>
  );
}

interface CellProps {
  index: number;
  state: PipelineStep["state"];
  exit: number | null;
  place: number;
  current: boolean;
}

// Most elements have not changed when the pipeline is read again. A colour is never alone: the name says the state.
const Cell = memo(function Cell({ index, state, exit, place, current }: CellProps) {
  const how = exit ? t("pipeline.exited", { state: t(`status.${state}`), code: exit }) : t(`status.${state}`);
  const name = t("pipeline.elementIs", { index, state: how });
  return (
    <button
      type="button"
      data-at={place}
      data-state={state}
      tabIndex={current ? 0 : -1}
      title={name}
      aria-label={name}
    >
      {index}
    </button>
  );
});

function stepOf(key: string, box: HTMLElement | null): number {
  const top = (box?.firstElementChild as HTMLElement | null)?.offsetTop;
  const cells = [...(box?.children ?? [])] as HTMLElement[];
  const inRow = cells.findIndex((cell) => cell.offsetTop !== top);
  const row = inRow < 0 ? cells.length : inRow;
  return { ArrowRight: 1, ArrowLeft: -1, ArrowDown: row, ArrowUp: -row }[key] ?? 0;
}
