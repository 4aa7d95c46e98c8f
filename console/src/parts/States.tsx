import { Alert, Button, Code, CopyButton, Group, Skeleton, Stack, Text } from "@mantine/core";
import type { UseQueryResult } from "@tanstack/react-query";
import { type ReactNode, useEffect, useState } from "react";
import { MissingPart } from "@/api/build";
import { ApiProblem, NoAnswer } from "@/api/client";
import { t } from "@/texts";
import { Page } from "./Page";

/** What went wrong, and what to do next. */
export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  const problem = error instanceof ApiProblem ? error : null;
  const silent = error instanceof NoAnswer;
  const missing = error instanceof MissingPart;
  const title = problem
    ? problem.title
    : silent
      ? t("problem.silentTitle")
      : missing
        ? t("problem.missingTitle")
        : t("problem.bugTitle");
  const detail = problem
    ? problem.message
    : silent
      ? t("problem.silent")
      : missing
        ? t("problem.missing")
        : String(error);
  return (
    <Alert color={silent ? "yellow" : "red"} title={title} role="alert" variant="default" className="problem">
      <Stack gap="xs">
        <Text size="sm" className="wrap">
          {detail}
        </Text>
        {problem?.nextStep ? <Text size="sm">{problem.nextStep}</Text> : null}
        {problem?.requestId ? (
          <Text size="xs" className="dim">
            {t("problem.request", { id: problem.requestId })}
          </Text>
        ) : null}
        {retry ? (
          <Group>
            <Button size="xs" variant="default" onClick={retry}>
              {t("problem.retry")}
            </Button>
          </Group>
        ) : null}
      </Stack>
    </Alert>
  );
}

/** Why there is nothing to show, and the command or button that changes this. */
export function Empty({
  title,
  children,
  command,
}: {
  title: string;
  children?: ReactNode;
  command?: string;
}) {
  return (
    <div className="empty">
      <Text fw={600}>{title}</Text>
      {children ? <div className="empty-text">{children}</div> : null}
      {command ? <Command line={command} /> : null}
    </div>
  );
}

/** A command line with a button that copies it. */
export function Command({ line }: { line: string }) {
  return (
    <div className="command">
      <Code block className="command-line">
        {line}
      </Code>
      <CopyButton value={line}>
        {({ copied, copy }) => (
          <Button size="xs" variant="default" onClick={copy}>
            {copied ? t("action.copied") : t("action.copy")}
          </Button>
        )}
      </CopyButton>
    </div>
  );
}

function Loading({ height }: { height: number }) {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const timer = window.setTimeout(() => setShown(true), 150);
    return () => window.clearTimeout(timer);
  }, []);
  return (
    <div aria-busy="true" className="loading" data-height={height > 100 ? "tall" : "short"}>
      {shown ? <Skeleton height={height} role="img" aria-label={t("state.loading")} /> : null}
    </div>
  );
}

/**
 * The data of a query: a skeleton until it arrives, or the problem if it failed and there is no older data.
 * `page`: the heading of the problem, where the data is what the page is about.
 */
export function Loaded<T>({
  query,
  height = 160,
  page,
  children,
}: {
  query: UseQueryResult<T>;
  height?: number;
  page?: string;
  children: (data: T) => ReactNode;
}) {
  if (query.data !== undefined) {
    return <>{children(query.data)}</>;
  }
  if (!query.error) {
    return <Loading height={height} />;
  }
  const problem = <Problem error={query.error} retry={() => void query.refetch()} />;
  return page === undefined ? problem : <Page title={page}>{problem}</Page>;
}
