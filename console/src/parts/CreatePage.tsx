import { Button, Group, Stack } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import type { FormEvent, ReactNode } from "react";
import type { Schemas } from "@/api/client";
import { t } from "@/texts";
import { useAction } from "./actions";
import { Page, Section } from "./Page";
import { Problem } from "./States";
import { WhyDetails } from "./Why";

export type Plan = Schemas["PlanView"];

/** A form that creates something, and shows with a dry run where it would be placed. */
export function CreatePage<R>({
  title,
  lead,
  where,
  ready,
  plan: ask,
  create: make,
  done,
  made,
  children,
}: {
  title: string;
  lead: string;
  where: string;
  /** Whether the form is complete enough for a dry run. */
  ready: boolean;
  plan: () => Promise<Plan>;
  create: () => Promise<R>;
  done: (made: R) => string;
  made: (made: R) => void;
  children: ReactNode;
}) {
  const plan = useMutation({ mutationFn: ask });
  const create = useAction(make, done);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    create.mutate(undefined, { onSuccess: made });
  };
  return (
    <Page title={title} lead={lead}>
      <div className="columns">
        <Section title={t("newSession.what")}>
          <form onSubmit={submit}>
            <Stack gap="md">
              {children}
              {create.error ? <Problem error={create.error} /> : null}
              <Group justify="flex-end" gap="xs">
                <Button
                  variant="default"
                  loading={plan.isPending}
                  disabled={!ready}
                  onClick={() => plan.mutate()}
                >
                  {t("newSession.dryRun")}
                </Button>
                <Button type="submit" loading={create.isPending}>
                  {t("action.create")}
                </Button>
              </Group>
            </Stack>
          </form>
        </Section>
        <Section title={where}>
          {plan.error ? <Problem error={plan.error} /> : null}
          {plan.data ? <PlanResult plan={plan.data} /> : null}
          {plan.error || plan.data ? null : <p className="dim">{t("newSession.whereHelp")}</p>}
        </Section>
      </div>
    </Page>
  );
}

function PlanResult({ plan }: { plan: Plan }) {
  return (
    <div aria-live="polite">
      {plan.fits ? (
        <ul className="plain">
          {(plan.places ?? []).map((place) => (
            <li key={`${place.hostname}/${place.agent_id}`}>
              <strong>{place.agent_id}</strong>{" "}
              {place.devices.map((device) => device.device_id || device.slot).join(", ")}
            </li>
          ))}
        </ul>
      ) : null}
      <WhyDetails why={plan} />
    </div>
  );
}
