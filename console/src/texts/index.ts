import i18next from "i18next";
import en from "./en.json";

/** A status that has a text and therefore a tone. The types of the REST models' statuses are subsets of it. */
export type StatusName = keyof (typeof en)["status"];

declare module "i18next" {
  interface CustomTypeOptions {
    resources: { translation: typeof en };
  }
}

// React escapes all text, so texts must not be escaped twice.
void i18next.init({
  lng: "en",
  resources: { en: { translation: en } },
  interpolation: { escapeValue: false },
  initAsync: false,
});

export const t = i18next.t.bind(i18next) as typeof i18next.t;
