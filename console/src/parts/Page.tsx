import { Group, Title } from "@mantine/core";
import { type ReactNode, useEffect, useRef } from "react";
import type { Right } from "@/api/auth";
import { t } from "@/texts";
import { useRight } from "./Only";

/** A page's heading, with its actions on the right. It takes the focus after navigation. */
export function Page({
  title,
  lead,
  actions,
  may,
  children,
}: {
  title: string;
  lead?: ReactNode;
  actions?: ReactNode;
  /** The right without which the actions are not shown. */
  may?: Right;
  children: ReactNode;
}) {
  const right = useRight(may ?? "change");
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} · ${t("app.name")}`;
    heading.current?.focus({ preventScroll: true });
  }, [title]);
  return (
    <div className="page">
      <Group justify="space-between" align="flex-start" gap="sm" className="page-head">
        <div className="page-title">
          <Title order={1} tabIndex={-1} ref={heading} className="wrap">
            {title}
          </Title>
          {lead ? <div className="lead">{lead}</div> : null}
        </div>
        {actions && (may === undefined || right.ever) ? (
          <Group gap="xs" className={may === undefined || right.now ? undefined : "not-shown"}>
            {actions}
          </Group>
        ) : null}
      </Group>
      {children}
    </div>
  );
}

/** A titled part of a page. */
export function Section({
  title,
  actions,
  children,
}: {
  title: string;
  actions?: ReactNode;
  children: ReactNode;
}) {
  return (
    <section className="section" aria-label={title}>
      <Group justify="space-between" gap="sm" className="section-head">
        <Title order={2}>{title}</Title>
        {actions}
      </Group>
      {children}
    </section>
  );
}

/** Names and values, in a grid. */
export function Facts({ facts }: { facts: [string, ReactNode][] }) {
  return (
    <dl className="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd className="wrap">{value === "" || value === null || value === undefined ? "–" : value}</dd>
        </div>
      ))}
    </dl>
  );
}
