import i18next from "i18next";
import en from "./en.json";

declare module "i18next" {
  interface CustomTypeOptions {
    resources: { translation: typeof en };
  }
}

// React escapes what it shows, so texts are not escaped twice.
void i18next.init({
  lng: "en",
  resources: { en: { translation: en } },
  interpolation: { escapeValue: false },
  initAsync: false,
});

export const t = i18next.t.bind(i18next) as typeof i18next.t;
