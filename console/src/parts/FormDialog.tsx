import { Button, Group, Modal, type ModalProps, Stack } from "@mantine/core";
import type { FormEvent, ReactNode } from "react";
import { t } from "@/texts";
import { useAction } from "./actions";
import { Problem } from "./States";

/** A form in a dialog: `save` sends it, `done` is announced, and then the dialog closes. */
export function FormDialog<R>({
  title,
  size,
  verb,
  ready,
  save,
  done,
  close,
  children,
  problem,
}: {
  title: string;
  size?: ModalProps["size"];
  verb: string;
  ready: boolean;
  /** The argument is the one that `problem` passed to `again`. */
  save: (again?: string) => Promise<R>;
  /** Without it, the caller shows the outcome. */
  done?: string;
  close: () => void;
  children: ReactNode;
  /** How a failure is shown, if differently from other failures. */
  problem?: (failure: { error: unknown; again: (argument: string) => void; reset: () => void }) => ReactNode;
}) {
  const action = useAction(save, done === undefined ? undefined : () => done);
  const send = (again?: string) =>
    action.mutate(again, {
      onSuccess: () => {
        if (done !== undefined) {
          close();
        }
      },
    });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    send();
  };
  return (
    <Dialog title={title} size={size} close={close}>
      <form onSubmit={submit}>
        <Stack gap="md">
          {children}
          {action.error ? (
            problem ? (
              problem({ error: action.error, again: send, reset: action.reset })
            ) : (
              <Problem error={action.error} />
            )
          ) : null}
          <Group justify="flex-end" gap="xs">
            <Button variant="default" onClick={close}>
              {t("action.cancel")}
            </Button>
            <Button type="submit" loading={action.isPending} disabled={!ready}>
              {verb}
            </Button>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}

/** A dialog with its title and the button that closes it. */
export function Dialog({
  title,
  size,
  close,
  children,
}: {
  title: string;
  size?: ModalProps["size"] | undefined;
  close: () => void;
  children: ReactNode;
}) {
  return (
    <Modal
      opened
      onClose={close}
      size={size ?? "md"}
      title={title}
      closeButtonProps={{ "aria-label": t("action.close") }}
    >
      {children}
    </Modal>
  );
}
