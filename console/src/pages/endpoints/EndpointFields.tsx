import { Checkbox } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { groupsQuery, secretNamesQuery } from "@/api/queries";
import { GroupField, PlacementPart, ResourceFields, RuntimeFields, VariablesPart } from "@/forms/common";
import {
  ChoiceField,
  CommandField,
  type Form,
  NumberField,
  Part,
  RowsField,
  SpanField,
  TextField,
  Two,
  WordsField,
} from "@/forms/fields";
import { setIn, type Values } from "@/forms/values";
import { t } from "@/texts";

/** The fields of an endpoint. `named`: its name can no longer change. */
export function EndpointFields({ form, named }: { form: Form; named?: boolean }) {
  const engine = form.values.engine ?? "custom";
  return (
    <>
      <Two>
        {named ? null : (
          <TextField
            form={form}
            path="name"
            label={t("field.name")}
            help={t("newEndpoint.nameHelp")}
            required
          />
        )}
        <ChoiceField
          form={form}
          path="engine"
          label={t("endpoint.engine")}
          help={t("newEndpoint.engineHelp")}
          choices={["vllm", "llamacpp"]}
          none="custom"
        />
      </Two>
      {engine === "custom" ? (
        <>
          <CommandField
            form={form}
            path="command"
            label={t("newSession.command")}
            help={t("endpoint.commandHelp")}
          />
          <TextField
            form={form}
            path="probe.path"
            label={t("endpoint.probe")}
            help={t("endpoint.probeHelp")}
            required
          />
        </>
      ) : (
        <TextField
          form={form}
          path="model"
          label={t("endpoint.model")}
          help={t("newEndpoint.modelHelp")}
          required
        />
      )}
      <RuntimeFields form={form} />
      <ResourceFields form={form} />
      <WordsField form={form} path="args" label={t("newEndpoint.args")} help={t("newEndpoint.argsHelp")} />
      <Two>
        <GroupField form={form} />
        <MoreGroups form={form} />
        <NumberField form={form} path="replicas" label={t("endpoints.replicas")} max={1000} />
        <NumberField
          form={form}
          path="priority"
          label={t("session.priority")}
          help={t("form.priorityHelp")}
          max={100}
        />
      </Two>
      <AutoscalePart form={form} />
      <RolloutPart form={form} />
      <RoutingPart form={form} />
      <VariablesPart form={form} />
      <Part form={form} title={t("endpoint.adapters")} names={["adapters"]}>
        <RowsField
          form={form}
          path="adapters"
          label={t("endpoint.adapters")}
          help={t("endpoint.adaptersHelp")}
          add={t("endpoint.addAdapter")}
          cells={[
            { key: "name", label: t("field.name") },
            { key: "source", label: t("endpoint.source") },
          ]}
        />
      </Part>
      <LimitsPart form={form} />
      <PlacementPart form={form} more={["shared_with"]} />
    </>
  );
}

/** Where a replica goes if its group has no room. */
function MoreGroups({ form }: { form: Form }) {
  const groups = useQuery(groupsQuery);
  return (
    <WordsField
      form={form}
      path="resource_groups"
      label={t("endpoint.groups")}
      help={t("endpoint.groupsHelp")}
      suggestions={groups.data?.map((group) => group.name) ?? []}
    />
  );
}

function AutoscalePart({ form }: { form: Form }) {
  const scaled = form.values.autoscale !== undefined && form.values.autoscale !== null;
  const replicas = Number(form.values.replicas ?? 1);
  const start: Values = { min: Math.min(replicas, 1), max: Math.max(replicas, 1), running: 8 };
  return (
    <Part form={form} title={t("endpoint.autoscaling")} names={["autoscale"]}>
      <Checkbox
        label={t("endpoint.autoscale")}
        description={t("endpoint.autoscaleHelp")}
        checked={scaled}
        onChange={(event) =>
          form.set(setIn(form.values, ["autoscale"], event.currentTarget.checked ? start : undefined))
        }
      />
      {scaled ? (
        <Two>
          <NumberField
            form={form}
            path="autoscale.min"
            label={t("endpoint.min")}
            help={t("endpoint.minHelp")}
          />
          <NumberField form={form} path="autoscale.max" label={t("endpoint.max")} />
          <NumberField form={form} path="autoscale.running" label={t("endpoint.byRunning")} digits={2} />
          <NumberField form={form} path="autoscale.waiting" label={t("endpoint.byWaiting")} digits={2} />
          <NumberField form={form} path="autoscale.request_rate" label={t("endpoint.byRate")} digits={2} />
          <NumberField
            form={form}
            path="autoscale.kv_cache"
            label={t("endpoint.byCache")}
            help={t("endpoint.byCacheHelp")}
            digits={2}
            step={0.1}
          />
          <NumberField
            form={form}
            path="autoscale.first_token_s"
            label={t("endpoint.byFirstToken")}
            digits={3}
          />
          <SpanField
            form={form}
            path="autoscale.idle_timeout_s"
            label={t("endpoint.idleTimeout")}
            help={t("endpoint.idleTimeoutHelp")}
          />
          <SpanField form={form} path="autoscale.up_cooldown_s" label={t("endpoint.upCooldown")} />
          <SpanField form={form} path="autoscale.down_delay_s" label={t("endpoint.downDelay")} />
        </Two>
      ) : null}
    </Part>
  );
}

function RolloutPart({ form }: { form: Form }) {
  return (
    <Part form={form} title={t("endpoint.rollout")} names={["rollout"]}>
      <Two>
        <NumberField
          form={form}
          path="rollout.canary"
          label={t("endpoint.canaryShare")}
          help={t("endpoint.canaryHelp")}
          max={99}
        />
        <NumberField
          form={form}
          path="rollout.max_failures"
          label={t("endpoint.maxFailures")}
          help={t("endpoint.maxFailuresHelp")}
          max={20}
        />
        <NumberField form={form} path="rollout.max_surge" label={t("endpoint.maxSurge")} />
        <NumberField form={form} path="rollout.max_unavailable" label={t("endpoint.maxUnavailable")} />
        <SpanField
          form={form}
          path="rollout.drain_timeout_s"
          label={t("endpoint.drain")}
          help={t("endpoint.drainHelp")}
        />
      </Two>
    </Part>
  );
}

function RoutingPart({ form }: { form: Form }) {
  const secrets = useQuery({ ...secretNamesQuery, retry: false });
  return (
    <Part form={form} title={t("endpoint.routing")} names={["routing"]}>
      <RowsField
        form={form}
        path="routing.fallbacks"
        label={t("endpoint.fallbacks")}
        help={t("endpoint.fallbacksHelp")}
        add={t("endpoint.addFallback")}
        cells={[
          { key: "model", label: t("endpoint.model") },
          { key: "url", label: t("endpoint.provider") },
          { key: "secret", label: t("endpoint.providerKey"), suggestions: secrets.data ?? [] },
        ]}
      />
      <Two>
        <SpanField
          form={form}
          path="routing.fallback_after_s"
          label={t("endpoint.fallbackAfter")}
          help={t("endpoint.fallbackAfterHelp")}
        />
        <ChoiceField
          form={form}
          path="routing.affinity"
          label={t("endpoint.affinity")}
          help={t("endpoint.affinityHelp")}
          choices={["prefix"]}
          none="none"
        />
      </Two>
    </Part>
  );
}

function LimitsPart({ form }: { form: Form }) {
  return (
    <Part form={form} title={t("endpoint.limits")} names={["limits", "max_lifetime_s"]}>
      <Two>
        <NumberField form={form} path="limits.requests_per_minute" label={t("endpoint.perMinute")} />
        <NumberField form={form} path="limits.tokens_per_minute" label={t("endpoint.tokensPerMinute")} />
        <NumberField form={form} path="limits.concurrent_requests" label={t("endpoint.concurrent")} />
        <SpanField
          form={form}
          path="max_lifetime_s"
          label={t("form.lifetime")}
          help={t("endpoint.lifetimeHelp")}
        />
      </Two>
    </Part>
  );
}
