import type { Schemas } from "@/api/client";
import { ChoiceField, type Form, NumberField, TextField, Two } from "@/forms/fields";
import { setIn } from "@/forms/values";
import { t } from "@/texts";

type Parameter = Schemas["Parameter"];

/** The parameters of a template. An empty field means the parameter's default. */
export function ParameterFields({ form, parameters }: { form: Form; parameters: Record<string, Parameter> }) {
  const base = Object.fromEntries(Object.entries(parameters).map(([name, one]) => [name, one.default]));
  const inner: Form = { ...form, at: ["parameters"], base };
  return (
    <Two>
      {Object.entries(parameters).map(([name, one]) => (
        <ParameterField key={name} form={inner} name={name} parameter={one} />
      ))}
    </Two>
  );
}

function ParameterField({ form, name, parameter }: { form: Form; name: string; parameter: Parameter }) {
  const required = parameter.default === null || parameter.default === undefined;
  const field = {
    path: [name],
    label: name,
    ...(parameter.description ? { help: parameter.description } : {}),
    required,
  };
  const number = parameter.type === "integer" || parameter.type === "number";
  const choices = parameter.type === "boolean" ? [true, false] : parameter.choices;
  if (choices) {
    // The choices are shown as texts, and sent as they are.
    const known = new Map(choices.map((one) => [String(one), one]));
    const typed: Form = {
      ...form,
      set: (values) => {
        const given = (values.parameters as Record<string, unknown> | undefined)?.[name];
        form.set(
          given === undefined
            ? values
            : setIn(values, ["parameters", name], known.get(String(given)) ?? given),
        );
      },
    };
    return <ChoiceField form={typed} {...field} choices={[...known.keys()]} none={t("form.noChoice")} />;
  }
  return number ? (
    <NumberField
      form={form}
      {...field}
      digits={parameter.type === "integer" ? 0 : 6}
      min={parameter.min ?? Number.MIN_SAFE_INTEGER}
      max={parameter.max ?? Number.MAX_SAFE_INTEGER}
    />
  ) : (
    <TextField form={form} {...field} />
  );
}
