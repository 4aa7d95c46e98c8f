import { Badge } from "@mantine/core";
import type { Session } from "@/api/client";
import { t } from "@/texts";

/** Marks beside the status of a session: that a person holds it, or has suspended it. */
export function Marks({ session }: { session: Session }) {
  const mark = session.held ? t("session.held") : session.suspended ? t("session.suspended") : "";
  return mark === "" ? null : (
    <Badge size="sm" variant="default" ml={6}>
      {mark}
    </Badge>
  );
}
