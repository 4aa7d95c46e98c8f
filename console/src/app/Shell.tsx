import { ActionIcon, AppShell, Burger, Button, Group, NavLink, useMantineColorScheme } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { Link, Outlet, useRouterState } from "@tanstack/react-router";
import { Fragment, Suspense, useEffect } from "react";
import { endSession, forgetDrafts, useAuth, usePlatformRole } from "@/api/auth";
import { api } from "@/api/client";
import { useConnection } from "@/api/connection";
import { CONSOLE } from "@/api/place";
import { type UnreadableRow, useUnreadable } from "@/api/unreadable";
import { clockTime, visible } from "@/parts/format";
import { lazy } from "@/parts/lazy";
import { Outcomes } from "@/parts/Outcomes";
import { Page } from "@/parts/Page";
import { Empty } from "@/parts/States";
import { t } from "@/texts";

const Account = lazy(() => import("./Account"));

/** The pages by heading; the first one needs none. */
const NAVIGATION = [
  ["", [["overview", "/"]]],
  [
    "workloads",
    [
      ["sessions", "/sessions"],
      ["pipelines", "/pipelines"],
      ["cronJobs", "/cron-jobs"],
      ["calendar", "/calendar"],
      ["templates", "/templates"],
      ["endpoints", "/endpoints"],
      ["catalog", "/catalog"],
    ],
  ],
  [
    "nodes",
    [
      ["groups", "/groups"],
      ["agents", "/agents"],
      ["connections", "/connections"],
    ],
  ],
  [
    "access",
    [
      ["users", "/users"],
      ["projects", "/projects"],
      ["keys", "/keys"],
      ["secrets", "/secrets"],
    ],
  ],
  [
    "operations",
    [
      ["quotas", "/quotas"],
      ["usage", "/usage"],
      ["notifications", "/notifications"],
      ["prices", "/prices"],
      ["workspaces", "/workspaces"],
      ["audit", "/audit"],
    ],
  ],
] as const;

/** Pages that only administrators and auditors of the platform may read. */
const OF_PLATFORM: ReadonlySet<string> = new Set(["connections", "users", "audit"]);

/** A browser clock that is off by more than this is reported, because absolute times look wrong. */
const CLOCK_OFF_MS = 30_000;

async function signOut() {
  forgetDrafts();
  const { data } = await api.DELETE("/v1/session", { keepalive: true }); // also if the page is left at once
  endSession("asked");
  if (data?.continue_at) {
    window.location.assign(data.continue_at);
  }
}

export function Shell() {
  const platform = usePlatformRole();
  const [opened, { toggle, close }] = useDisclosure(false);
  const path = useRouterState({ select: (state) => state.location.pathname });
  // biome-ignore lint/correctness/useExhaustiveDependencies: navigation closes the menu on a narrow screen
  useEffect(close, [path]);
  return (
    <AppShell
      header={{ height: 52 }}
      navbar={{ width: 206, breakpoint: "sm", collapsed: { mobile: !opened } }}
      padding="md"
    >
      <a className="skip" href="#content">
        {t("app.skip")}
      </a>
      <AppShell.Header px="md">
        <Group h="100%" justify="space-between" wrap="nowrap">
          <Group gap="sm" wrap="nowrap">
            <Burger opened={opened} onClick={toggle} hiddenFrom="sm" size="sm" aria-label={t("app.menu")} />
            <Link to="/" className="brand">
              <img src={`${CONSOLE}/icon.svg`} alt="" />
              {t("app.name")}
            </Link>
          </Group>
          <Group gap="xs" wrap="nowrap">
            <Liveness />
            <SchemeButton />
            <Who />
            <Button size="xs" variant="default" onClick={() => void signOut()}>
              {t("app.signOut")}
            </Button>
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs" component="nav" aria-label={t("app.navigation")}>
        {NAVIGATION.map(([heading, pages]) => (
          <Fragment key={heading}>
            {heading ? <div className="nav-head">{t(`nav.${heading}`)}</div> : null}
            {pages
              .filter(([name]) => platform !== "" || !OF_PLATFORM.has(name))
              .map(([name, to]) => (
                <Item key={name} name={name} to={to} path={path} />
              ))}
          </Fragment>
        ))}
      </AppShell.Navbar>
      <AppShell.Main id="content" className="shell-main">
        <Banners />
        <Outlet />
      </AppShell.Main>
      <Outcomes />
    </AppShell>
  );
}

type Destination = (typeof NAVIGATION)[number][1][number];

function Item({ name, to, path }: { name: Destination[0]; to: Destination[1]; path: string }) {
  const here = (path.startsWith(CONSOLE) ? path.slice(CONSOLE.length) : path) || "/";
  const active = to === "/" ? here === "/" : here === to || here.startsWith(`${to}/`);
  return (
    <NavLink
      component={Link}
      to={to}
      label={t(`nav.${name}`)}
      active={active}
      variant="light"
      className="nav-item"
      aria-current={active ? "page" : undefined}
    />
  );
}

/** Who is signed in, and in which project. A user with several projects can switch between them. */
function Who() {
  const { who } = useAuth();
  const [opened, { open, close }] = useDisclosure(false);
  if (!who) {
    return null;
  }
  const name = `${visible(who.user)} · ${visible(who.project)} · ${who.role}`;
  return (
    <>
      <button type="button" className="who" title={name} aria-haspopup="dialog" onClick={open}>
        {name}
      </button>
      {opened ? (
        <Suspense>
          <Account who={who} close={close} />
        </Suspense>
      ) : null}
    </>
  );
}

/** How current the page is: live through the stream, or polled every few seconds. */
function Liveness() {
  const { live, lost } = useConnection();
  const text = lost ? t("live.lost") : live ? t("live.live") : t("live.polling");
  return (
    <span
      className="status liveness"
      data-tone={lost ? "bad" : live ? "good" : "busy"}
      title={t("live.help")}
    >
      <span className="status-dot" aria-hidden="true" />
      <span className="liveness-text">{text}</span>
    </span>
  );
}

function SchemeButton() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const next = { auto: "dark", dark: "light", light: "auto" } as const;
  return (
    <ActionIcon
      variant="default"
      size={30}
      onClick={() => setColorScheme(next[colorScheme])}
      aria-label={t("app.scheme", {
        scheme: t(`scheme.${colorScheme}`),
        next: t(`scheme.${next[colorScheme]}`),
      })}
      title={t(`scheme.${colorScheme}`)}
    >
      <svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true">
        <circle cx="8" cy="8" r="6.2" fill="none" stroke="currentColor" strokeWidth="1.5" />
        <path
          d={
            colorScheme === "light"
              ? ""
              : colorScheme === "dark"
                ? "M8 1.8a6.2 6.2 0 0 0 0 12.4a6.2 6.2 0 0 0 0-12.4z"
                : "M8 1.8a6.2 6.2 0 0 0 0 12.4z"
          }
          fill="currentColor"
        />
      </svg>
    </ActionIcon>
  );
}

/** The most items to name. */
const NAMED = 3;

function named(rows: UnreadableRow[]): string {
  return rows
    .slice(0, NAMED)
    .map((row) => `${row.kind} ${visible(row.name)} ${visible(row.detail)}`)
    .join("; ");
}

function Banners() {
  const { lost, since, behindMs } = useConnection();
  const unreadable = useUnreadable();
  return (
    <>
      {unreadable.length > 0 ? (
        <div className="banner" role="status">
          {t("live.newer", { count: unreadable.length, rows: named(unreadable) })}
        </div>
      ) : null}
      {lost ? (
        <div className="banner" role="alert">
          {t("live.silent", { at: clockTime(since) })}
        </div>
      ) : null}
      {Math.abs(behindMs) > CLOCK_OFF_MS ? (
        <div className="banner" role="status">
          {t("live.clock", { seconds: Math.round(Math.abs(behindMs) / 1000) })}
        </div>
      ) : null}
    </>
  );
}

export function NotFound() {
  return (
    <Page title={t("notFound.title")}>
      <Empty title={t("notFound.text")}>
        <Link to="/" className="link">
          {t("notFound.home")}
        </Link>
      </Empty>
    </Page>
  );
}
