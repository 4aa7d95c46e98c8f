import { Button } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useMay } from "@/api/auth";
import { Section } from "@/parts/Page";
import { Command } from "@/parts/States";
import { t } from "@/texts";

const STEPS = [
  ["node", "/agents", "moorage join-tokens create"],
  ["model", "/new-endpoint", "moorage serve ./model.gguf"],
  ["session", "/new-session", "moorage run -- echo hello"],
] as const;

/** What to do first where nothing exists yet: each with a button, and the command that does the same. */
export function FirstRun({ agents }: { agents: number }) {
  const administers = useMay("administer");
  const steps = STEPS.filter(([name]) => name !== "node" || administers);
  return (
    <Section title={t("firstRun.title")}>
      <p className="dim first-run-lead">{agents === 0 ? t("firstRun.noAgents") : t("firstRun.ready")}</p>
      <div className="first-run">
        {steps.map(([name, to, command]) => (
          <div key={name} className="first-run-step">
            <h3>{t(`firstRun.${name}`)}</h3>
            <p className="dim">{t(`firstRun.${name}Text`)}</p>
            <Button
              component={Link}
              to={to}
              size="xs"
              variant={(name === "node") === (agents === 0) ? "filled" : "default"}
            >
              {t(`firstRun.${name}Button`)}
            </Button>
            <Command line={command} />
          </div>
        ))}
      </div>
    </Section>
  );
}
