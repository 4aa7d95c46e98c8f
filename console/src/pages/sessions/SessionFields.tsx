import { useQuery } from "@tanstack/react-query";
import { qosQuery } from "@/api/queries";
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
} from "@/forms/fields";
import { getIn } from "@/forms/values";
import { t } from "@/texts";

/** The qualities of service that the user may request, if there are any. */
function QosField({ form, chosen }: { form: Form; chosen: unknown }) {
  const all = useQuery({ ...qosQuery, retry: false }).data ?? [];
  if (all.length === 0 && chosen === undefined) return null;
  return (
    <ChoiceField
      form={form}
      path="qos"
      label={t("qos.title")}
      help={t("form.qosHelp")}
      choices={all.map((one) => one.name)}
      none={t("form.noQos")}
    />
  );
}

/** The fields of a session. What a form does not have is kept, and is changed in the editor. */
export function SessionFields({ form }: { form: Form }) {
  const of = (name: string) =>
    getIn(form.values, [...(form.at ?? []), name]) ?? getIn(form.base ?? {}, [name]);
  const batch = (of("type") ?? "batch") === "batch";
  return (
    <>
      <Two>
        <TextField form={form} path="name" label={t("field.name")} help={t("newSession.nameHelp")} />
        <ChoiceField
          form={form}
          path="type"
          label={t("field.type")}
          help={t("newSession.typeHelp")}
          choices={["batch", "interactive"]}
          {...(form.base ? { none: "batch" } : {})}
        />
        <GroupField form={form} />
        <NumberField
          form={form}
          path="priority"
          label={t("session.priority")}
          help={t("form.priorityHelp")}
          max={100}
        />
        <QosField form={form} chosen={of("qos")} />
      </Two>
      <CommandField
        form={form}
        path="command"
        label={t("newSession.command")}
        help={t("newSession.commandHelp")}
      />
      <RuntimeFields form={form} />
      <ResourceFields form={form} />
      <VariablesPart form={form} />
      <PortsPart form={form} />
      <Part
        form={form}
        title={t("form.limits")}
        names={[
          "timeout_s",
          "max_lifetime_s",
          "pending_timeout_s",
          "retries",
          "starts_at",
          "reuse",
          "workspace",
          "on_lost_agent",
        ]}
      >
        <Two>
          {batch ? (
            <SpanField form={form} path="timeout_s" label={t("form.timeout")} help={t("form.timeoutHelp")} />
          ) : null}
          <SpanField
            form={form}
            path="max_lifetime_s"
            label={t("form.lifetime")}
            help={t("form.lifetimeHelp")}
          />
          <SpanField
            form={form}
            path="pending_timeout_s"
            label={t("form.pending")}
            help={t("form.pendingHelp")}
          />
          {batch ? (
            <>
              <NumberField
                form={form}
                path="retries"
                label={t("form.retries")}
                help={t("form.retriesHelp")}
                max={20}
              />
              <TextField
                form={form}
                path="starts_at"
                label={t("form.startsAt")}
                help={t("form.startsAtHelp")}
              />
              <ChoiceField
                form={form}
                path="reuse"
                label={t("form.reuse")}
                help={t("form.reuseHelp")}
                choices={["success", "live", "both", "never"]}
                none={t("form.asGroup")}
              />
            </>
          ) : null}
          <ChoiceField
            form={form}
            path="workspace"
            label={t("form.workspace")}
            help={t("form.workspaceHelp")}
            choices={["keep", "drop"]}
            none={t("form.asManager")}
          />
        </Two>
      </Part>
      <Part form={form} title={t("form.dependencies")} names={["depends_on", "dependency_failed"]}>
        <RowsField
          form={form}
          path="depends_on"
          label={t("form.dependsOn")}
          help={t("form.dependsOnHelp")}
          add={t("form.addDependency")}
          cells={[
            { key: "session", label: t("field.session") },
            { key: "on", label: t("form.on"), choices: ["success", "any", "failure"] },
          ]}
        />
        <ChoiceField
          form={form}
          path="dependency_failed"
          label={t("form.otherwise")}
          choices={["end", "wait"]}
          none="end"
        />
      </Part>
      <Part form={form} title={t("form.cluster")} names={["cluster"]}>
        <Two>
          <NumberField
            form={form}
            path="cluster.size"
            label={t("form.clusterSize")}
            help={t("form.clusterHelp")}
            min={1}
            max={128}
          />
          <ChoiceField
            form={form}
            path="cluster.mode"
            label={t("form.clusterMode")}
            choices={["single-node", "multi-node"]}
            none="single-node"
          />
          <ChoiceField
            form={form}
            path="cluster.on_kernel_loss"
            label={t("form.kernelLoss")}
            choices={["end", "degrade"]}
            none="end"
          />
        </Two>
      </Part>
      <PlacementPart form={form} />
    </>
  );
}

function PortsPart({ form }: { form: Form }) {
  return (
    <Part form={form} title={t("form.ports")} names={["ports"]}>
      <RowsField
        form={form}
        path="ports"
        label={t("form.ports")}
        help={t("form.portsHelp")}
        add={t("form.addPort")}
        cells={[
          { key: "name", label: t("field.name") },
          { key: "port", label: t("form.port"), kind: "number" },
          { key: "protocol", label: t("form.protocol"), choices: ["http", "tcp"] },
          { key: "base_path", label: t("form.basePath"), kind: "check" },
        ]}
      />
    </Part>
  );
}
