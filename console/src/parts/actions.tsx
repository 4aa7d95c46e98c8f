import { Button, Group, List, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { refreshAll } from "@/api/queries";
import { t } from "@/texts";
import { announce } from "./Outcomes";
import { Problem } from "./States";

/** The warnings in an answer, for example about a secret that is stored in plain text. */
function warningsOf(result: unknown): string[] {
  const found = (result as { warnings?: string[] } | null | undefined)?.warnings ?? [];
  return found.map((text) => t("action.warning", { text }));
}

/**
 * A change by the user. When it is done, its outcome and warnings are announced, and the shown data is refetched.
 */
export function useAction<A = void, R = unknown>(
  act: (argument: A) => Promise<R>,
  done?: (result: R) => string,
) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: act,
    onSuccess: async (result) => {
      const warnings = warningsOf(result);
      const told = [...(done ? [done(result)] : []), ...warnings];
      if (told.length > 0) {
        announce(told.join(" "), warnings.length > 0 ? 30_000 : 6000);
      }
      await refreshAll(client);
    },
  });
}

/** Asks before a destructive action, and shows what will happen. `retype`: a name that must be typed first. */
export function Confirm({
  title,
  consequences,
  verb,
  safe,
  retype,
  act,
  done,
  close,
  children,
}: {
  title: string;
  consequences: string[];
  verb: string;
  /** Nothing ends or is lost. */
  safe?: boolean;
  retype?: string;
  act: () => Promise<unknown>;
  /** The outcome to announce. Without it, the page shows it. */
  done?: string;
  close: () => void;
  children?: ReactNode;
}) {
  const [typed, setTyped] = useState("");
  const action = useAction(act, done === undefined ? undefined : () => done);
  return (
    <Modal opened onClose={close} title={title} closeButtonProps={{ "aria-label": t("action.close") }}>
      <Stack gap="md">
        <List size="sm" spacing={4}>
          {consequences.map((line) => (
            <List.Item key={line}>{line}</List.Item>
          ))}
        </List>
        {children}
        {retype ? (
          <TextInput
            label={t("confirm.retype", { name: retype })}
            value={typed}
            onChange={(event) => setTyped(event.currentTarget.value)}
          />
        ) : null}
        {action.error ? <Problem error={action.error} /> : null}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={close} data-autofocus>
            {t("action.cancel")}
          </Button>
          <Button
            {...(safe ? {} : { color: "red.8" })}
            loading={action.isPending}
            disabled={retype !== undefined && typed !== retype}
            onClick={() => action.mutate(undefined, { onSuccess: close })}
          >
            {verb}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}

/** A button that opens a dialog, which is created when it opens. */
export function Opener({
  label,
  variant = "default",
  danger,
  disabled,
  reason,
  gone,
  dialog,
}: {
  label: string;
  variant?: "default" | "filled";
  danger?: boolean;
  disabled?: boolean;
  reason?: string;
  /** There is nothing left to do: the button is gone, but a dialog that is open stays. */
  gone?: boolean;
  dialog: (close: () => void) => ReactNode;
}) {
  const [opened, setOpened] = useState(false);
  return (
    <>
      {gone ? null : (
        <Button
          size="xs"
          variant={variant}
          className={danger ? "danger" : undefined}
          disabled={disabled}
          title={disabled ? reason : undefined}
          onClick={() => setOpened(true)}
        >
          {label}
        </Button>
      )}
      {opened ? dialog(() => setOpened(false)) : null}
    </>
  );
}

export function Muted({ children }: { children: ReactNode }) {
  return (
    <Text span size="sm" className="dim">
      {children}
    </Text>
  );
}
