import { Button, Group, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { api, type Subscription, unwrap } from "@/api/client";
import { deliveriesQuery, subscriptionsQuery } from "@/api/queries";
import { Confirm, Opener, useAction } from "@/parts/actions";
import { DataTable } from "@/parts/DataTable";
import { Dialog } from "@/parts/FormDialog";
import { visible } from "@/parts/format";
import { Page } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { Age } from "@/parts/Time";
import { t } from "@/texts";
import { NewSubscription, Rotate, SubscriptionForm } from "./SubscriptionForms";

/** Events that are sent to webhooks and by mail. */
export function Notifications() {
  const subscriptions = useQuery(subscriptionsQuery);
  return (
    <Page
      title={t("nav.notifications")}
      lead={t("notifications.lead")}
      actions={
        <Opener
          label={t("notifications.create")}
          variant="filled"
          dialog={(close) => <NewSubscription close={close} />}
        />
      }
    >
      <Loaded query={subscriptions}>
        {(rows) => (
          <DataTable
            label={t("nav.notifications")}
            rows={rows}
            id={(one) => one.id}
            empty={
              <Empty title={t("notifications.empty")} command="moorage notifications create NAME --mail" />
            }
            columns={[
              { key: "name", header: t("field.name"), cell: (one) => visible(one.name) },
              {
                key: "target",
                header: t("notifications.target"),
                cell: (one) => (one.target ? visible(one.target) : t("notifications.ownAddress")),
              },
              {
                key: "events",
                header: t("notifications.events"),
                wide: true,
                cell: (one) => (one.events.length > 0 ? one.events.join(", ") : t("notifications.asked")),
              },
              { key: "state", header: t("notifications.state"), cell: (one) => <State row={one} /> },
              {
                key: "last",
                header: t("notifications.last"),
                wide: true,
                cell: (one) =>
                  one.last_delivery ? (
                    <>
                      {t(`notifications.states.${one.last_delivery.state}`)} <Age at={one.last_delivery.at} />
                    </>
                  ) : (
                    t("notifications.never")
                  ),
              },
              {
                key: "action",
                header: t("field.action"),
                cell: (one) => <Actions row={one} />,
              },
            ]}
          />
        )}
      </Loaded>
    </Page>
  );
}

function State({ row }: { row: Subscription }) {
  return (
    <Stack gap={0}>
      <span>{t(`notifications.states.${row.state}`)}</span>
      {row.reason ? (
        <Text size="xs" c="dimmed" lineClamp={2}>
          {visible(row.reason)}
        </Text>
      ) : null}
    </Stack>
  );
}

function Actions({ row }: { row: Subscription }) {
  return (
    <span className="actions">
      <Opener label={t("notifications.log")} dialog={(close) => <Log row={row} close={close} />} />
      <Opener label={t("action.edit")} dialog={(close) => <SubscriptionForm row={row} close={close} />} />
      {row.channel === "webhook" && row.format === "json" ? (
        <Opener label={t("notifications.rotate")} dialog={(close) => <Rotate row={row} close={close} />} />
      ) : null}
      <Opener
        label={t("notifications.delete")}
        danger
        dialog={(close) => (
          <Confirm
            title={t("notifications.deleteTitle", { name: row.name })}
            consequences={[t("notifications.deleteQueue", { count: row.queued })]}
            verb={t("notifications.delete")}
            act={() => unwrap(api.DELETE("/v1/subscriptions/{id}", { params: { path: { id: row.id } } }))}
            done={t("notifications.deleted", { name: row.name })}
            close={close}
          />
        )}
      />
    </span>
  );
}

/** The newest deliveries, with a button that sends a test. */
function Log({ row, close }: { row: Subscription; close: () => void }) {
  const deliveries = useQuery(deliveriesQuery(row.id));
  const test = useAction(
    () => unwrap(api.POST("/v1/subscriptions/{id}/test", { params: { path: { id: row.id } } })),
    () => t("notifications.tested"),
  );
  return (
    <Dialog title={t("notifications.logOf", { name: row.name })} size="xl" close={close}>
      <Stack gap="md">
        <Group>
          <Button variant="default" loading={test.isPending} onClick={() => test.mutate()}>
            {t("notifications.test")}
          </Button>
        </Group>
        <Loaded query={deliveries}>
          {(rows) => (
            <DataTable
              label={t("notifications.log")}
              rows={rows}
              id={(one) => one.id}
              empty={<Empty title={t("notifications.noDeliveries")} />}
              columns={[
                {
                  key: "at",
                  header: t("notifications.happened"),
                  cell: (one) => <Age at={one.happened_at} />,
                },
                { key: "event", header: t("notifications.event"), cell: (one) => one.event },
                { key: "subject", header: t("notifications.subject"), cell: (one) => visible(one.subject) },
                {
                  key: "state",
                  header: t("notifications.state"),
                  cell: (one) => t(`notifications.states.${one.state}`),
                },
                { key: "attempts", header: t("notifications.attempts"), cell: (one) => String(one.attempts) },
                { key: "answer", header: t("notifications.answer"), cell: (one) => visible(one.answer) },
              ]}
            />
          )}
        </Loaded>
      </Stack>
    </Dialog>
  );
}
