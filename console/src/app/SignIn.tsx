import { Alert, Button, PasswordInput, SegmentedControl, Stack, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { beginSession, type SignOutCause } from "@/api/auth";
import { api, unwrap } from "@/api/client";
import { CONSOLE, PREFIX } from "@/api/place";
import { Problem } from "@/parts/States";
import { t } from "@/texts";

type Way = "password" | "key";

/** Opens a console session with a password or an API key. Neither is kept in the browser. */
export function SignIn({ cause }: { cause: SignOutCause }) {
  const client = useQueryClient();
  const [way, setWay] = useState<Way>("key");
  const [user, setUser] = useState("");
  const [secret, setSecret] = useState("");
  const body = way === "key" ? { key: secret.trim() } : { user: user.trim(), password: secret };
  const signIn = useMutation({
    mutationFn: () => unwrap(api.POST("/v1/session", { body })),
    onSuccess: (who) => {
      client.clear();
      beginSession(who);
    },
  });
  const ways = useQuery({
    queryKey: ["sign-in-ways"],
    queryFn: () => unwrap(api.GET("/v1/session/ways")),
    staleTime: Number.POSITIVE_INFINITY,
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
            <img src={`${CONSOLE}/icon.svg`} alt="" />
            {t("app.name")}
          </div>
          <Title order={1}>{t("signIn.title")}</Title>
          {cause === "expired" ? (
            <Alert variant="default" color="yellow" role="status">
              {t("signIn.expired")}
            </Alert>
          ) : null}
          <SegmentedControl
            fullWidth
            transitionDuration={0}
            aria-label={t("signIn.way")}
            data={[
              { value: "key", label: t("signIn.key") },
              { value: "password", label: t("signIn.password") },
            ]}
            value={way}
            onChange={(value) => {
              setWay(value as Way);
              setSecret("");
            }}
          />
          {way === "password" ? (
            <TextInput
              label={t("field.user")}
              value={user}
              onChange={(event) => setUser(event.currentTarget.value)}
              autoComplete="username"
              required
            />
          ) : null}
          <PasswordInput
            label={way === "key" ? t("signIn.key") : t("signIn.password")}
            description={way === "key" ? t("signIn.keyHelp") : t("signIn.passwordHelp")}
            value={secret}
            onChange={(event) => setSecret(event.currentTarget.value)}
            autoComplete={way === "key" ? "off" : "current-password"}
            required
            visibilityToggleButtonProps={{ "aria-label": t("signIn.show") }}
          />
          {signIn.error ? <Problem error={signIn.error} /> : null}
          <Button type="submit" loading={signIn.isPending} disabled={secret.trim() === ""}>
            {t("signIn.submit")}
          </Button>
          {ways.data?.oidc ? (
            <Button component="a" href={`${PREFIX}/v1/session/oidc`} variant="default">
              {ways.data.oidc}
            </Button>
          ) : null}
        </Stack>
      </form>
    </main>
  );
}
