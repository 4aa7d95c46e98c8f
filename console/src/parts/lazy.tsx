import { type ComponentType, use, useSyncExternalStore } from "react";
import { afterFailure, MissingPart } from "@/api/build";
import { NoAnswer } from "@/api/client";
import { noteSilence, onRecovery } from "@/api/connection";
import { Problem } from "./States";

// Parts of the console that are loaded when they are first shown, or earlier, when the browser is idle. React's own
// `lazy` and the router's `lazyRouteComponent` never load a part again after a failure, and the latter reloads the
// whole page at once, which loses the page while the manager is away.

const parts: Part<never>[] = [];

// Browsers remember that a module failed to load, and name its address in the error.
const FAILED = /https?:\S+?\.js/;

// A single file that does not arrive although the manager answers is asked for again after these pauses.
const PAUSES_MS = [500, 2000];

class Part<P> {
  component: ComponentType<P> | undefined;
  error: Error | undefined;
  private loading: Promise<void> | undefined;
  private failed = "";
  private tries = 0;
  private wasAway = false;
  private readonly listeners = new Set<() => void>();

  constructor(
    private readonly read: () => Promise<object>,
    private readonly name: string,
  ) {}

  /** Never rejects: a failure is shown in the part's place. */
  readonly load = (): Promise<void> => {
    this.loading ??= this.attempt();
    return this.loading;
  };

  /** Load it before it is needed; a failure has no effect. */
  async preload(): Promise<void> {
    if (!this.component && !this.loading) {
      await this.fetch().catch(() => {});
    }
  }

  readonly retry = () => {
    this.loading = undefined;
    this.change(undefined);
  };

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  private async attempt(): Promise<void> {
    for (const pauseMs of [...PAUSES_MS, undefined]) {
      try {
        await this.fetch();
        this.change(undefined);
        return;
      } catch (error) {
        const found = await afterFailure(this.wasAway);
        if (found !== "missing" || pauseMs === undefined) {
          this.explain(found, error);
          return;
        }
        await new Promise((resolve) => window.setTimeout(resolve, pauseMs));
      }
    }
  }

  /** Load the module; after a failure, under another address. */
  private async fetch(): Promise<void> {
    try {
      this.tries += this.failed ? 1 : 0;
      const module = this.failed
        ? await import(/* @vite-ignore */ `${this.failed}?again=${this.tries}`)
        : await this.read();
      this.component = (module as Record<string, ComponentType<P>>)[this.name];
    } catch (error) {
      this.failed ||= FAILED.exec(String(error))?.[0] ?? "";
      throw error;
    }
  }

  private explain(found: "away" | "reloading" | "missing", error: unknown) {
    this.wasAway = found === "away";
    if (found === "away") {
      noteSilence();
      const stop = onRecovery(() => {
        stop();
        this.retry();
      });
      this.change(new NoAnswer());
    } else if (found === "missing") {
      this.change(new MissingPart(String(error)));
    }
  }

  private change(error: Error | undefined) {
    this.error = error;
    for (const listener of this.listeners) {
      listener();
    }
  }
}

function shown<P extends object>(part: Part<P>) {
  parts.push(part as Part<never>);
  function Lazy(props: P) {
    const error = useSyncExternalStore(part.subscribe, () => part.error);
    if (error) {
      return <Problem error={error} retry={part.retry} />;
    }
    if (!part.component) {
      use(part.load());
    }
    const Shown = part.component;
    return Shown ? <Shown {...props} /> : null;
  }
  return Object.assign(Lazy, { preload: part.load });
}

/** Like React's `lazy`: suspends until the part is loaded. */
export function lazy<C extends ComponentType<never>>(load: () => Promise<{ default: C }>): C {
  return shown(new Part<object>(load, "default")) as unknown as C;
}

/** A page, for the router. */
export function lazyRouteComponent<K extends string>(
  load: () => Promise<Record<K, ComponentType<object>>>,
  name: K,
) {
  return shown(new Part<object>(load, name));
}

const QUIET_MS = 3000;

/** Load all parts, one after the other, while the browser is idle: the console then survives an upgrade. */
export function preloadWhenIdle() {
  const link = (navigator as { connection?: { saveData?: boolean; effectiveType?: string } }).connection;
  if (link?.saveData || ["slow-2g", "2g"].includes(link?.effectiveType ?? "")) {
    return;
  }
  const idle = () =>
    new Promise<void>((resolve) =>
      window.requestIdleCallback
        ? window.requestIdleCallback(() => resolve())
        : window.setTimeout(resolve, 200),
    );
  window.setTimeout(async () => {
    for (const part of parts) {
      await idle();
      await part.preload();
    }
  }, QUIET_MS);
}
