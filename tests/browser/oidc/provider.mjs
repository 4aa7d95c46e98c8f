// An OpenID provider for the tests: `node provider.mjs PORT KEY-ID CALLBACK HOME`. Whoever signs in as NAME is NAME; a
// name that starts with "lead" is in the group "leads", others are in "staff".
import { generateKeyPairSync } from "node:crypto";
import { Provider } from "oidc-provider";

const [port, kid, callback, home] = process.argv.slice(2);
// Another site than the manager, which is at 127.0.0.1: cookies of the same site only do not come along.
const issuer = `http://localhost:${port}`;
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "moorage",
      client_secret: "secret of the tests: + / %",
      redirect_uris: [callback],
      post_logout_redirect_uris: [home],
    },
  ],
  jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), kid, use: "sig", alg: "RS256" }] },
  claims: {
    openid: ["sub"],
    email: ["email", "email_verified"],
    profile: ["preferred_username", "groups"],
  },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({
      sub: id,
      email: `${id}@example.com`,
      email_verified: true,
      preferred_username: id,
      groups: [id.startsWith("lead") ? "leads" : "staff"],
    }),
  }),
  pkce: { required: () => true },
  cookies: { keys: ["of the tests"] },
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
