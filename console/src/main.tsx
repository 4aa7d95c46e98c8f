import { MantineProvider } from "@mantine/core";
import "@mantine/core/styles.css";
import "./styles.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { setNonce } from "get-nonce";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { findSession, useAuth } from "./api/auth";
import { client, startLive } from "./app/queryClient";
import { makeRouter } from "./app/router";
import { SignIn } from "./app/SignIn";
import { theme } from "./app/theme";
import { preloadWhenIdle } from "./parts/lazy";
import { t } from "./texts";

const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";
setNonce(nonce);
const router = makeRouter(client);
startLive();
void findSession();
preloadWhenIdle();

/** What index.html shows until the console is loaded. */
function Waiting() {
  return (
    <div className="waiting" aria-busy="true">
      <div className="waiting-head">{t("app.name")}</div>
      <div className="waiting-body">
        <div />
        <div />
        <div />
      </div>
    </div>
  );
}

function App() {
  const auth = useAuth();
  if (!auth.known) {
    return <Waiting />;
  }
  return auth.who ? <RouterProvider router={router} /> : <SignIn cause={auth.cause} />;
}

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <MantineProvider theme={theme} defaultColorScheme="auto" getStyleNonce={() => nonce}>
        <QueryClientProvider client={client}>
          <App />
        </QueryClientProvider>
      </MantineProvider>
    </StrictMode>,
  );
}
