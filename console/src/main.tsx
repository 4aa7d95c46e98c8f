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

const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";
setNonce(nonce);
const router = makeRouter(client);
startLive();
void findSession();

// A tab opened before an upgrade requests files that no longer exist, so load the new console once.
window.addEventListener("vite:preloadError", () => {
  const last = Number(window.sessionStorage.getItem("moorage-reloaded") ?? 0);
  if (Date.now() - last > 60_000) {
    window.sessionStorage.setItem("moorage-reloaded", String(Date.now()));
    window.location.reload();
  }
});

function App() {
  const auth = useAuth();
  if (!auth.known) {
    return null;
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
