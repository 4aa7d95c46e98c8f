import { Alert, Button, PasswordInput, Stack, Text, Title } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { type SignOutCause, signInWithKey } from "@/api/auth";
import { ApiProblem, NoAnswer } from "@/api/client";
import { Problem } from "@/parts/States";
import { t } from "@/texts";

async function check(key: string) {
  let response: Response;
  try {
    response = await fetch("/v1/groups", { headers: { Authorization: `Bearer ${key}` }, cache: "no-store" });
  } catch {
    throw new NoAnswer();
  }
  if (!response.ok) {
    throw new ApiProblem(response, await response.json().catch(() => null));
  }
}

export function SignIn({ cause }: { cause: SignOutCause }) {
  const [key, setKey] = useState("");
  const signIn = useMutation({
    mutationFn: () => check(key.trim()),
    onSuccess: () => signInWithKey(key.trim()),
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    signIn.mutate();
  };
  return (
    <main className="sign-in">
      <form className="sign-in-box" onSubmit={submit}>
        <Stack gap="md">
          <div className="brand">
            <img src="/console/icon.svg" alt="" />
            {t("app.name")}
          </div>
          <Title order={1}>{t("signIn.title")}</Title>
          {cause === "expired" ? (
            <Alert variant="default" color="yellow" role="status">
              {t("signIn.expired")}
            </Alert>
          ) : null}
          <PasswordInput
            label={t("signIn.key")}
            description={t("signIn.keyHelp")}
            value={key}
            onChange={(event) => setKey(event.currentTarget.value)}
            autoComplete="current-password"
            required
            data-autofocus
            visibilityToggleButtonProps={{ "aria-label": t("signIn.show") }}
          />
          {signIn.error ? <Problem error={signIn.error} /> : null}
          <Button type="submit" loading={signIn.isPending} disabled={key.trim() === ""}>
            {t("signIn.submit")}
          </Button>
          <Text size="xs" className="dim">
            {t("signIn.stored")}
          </Text>
        </Stack>
      </form>
    </main>
  );
}
