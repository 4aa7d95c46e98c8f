import { Alert } from "@mantine/core";
import { visible } from "@/parts/format";
import { WhyDetails } from "@/parts/Why";
import { t } from "@/texts";
import { hiddenIn, type Plan } from "./plans";
import type { Values } from "./values";

/** Where a session would be placed, or what it would wait for. */
export function PlanResult({ plan }: { plan: Plan }) {
  return (
    <>
      {plan.fits ? (
        <ul className="plain">
          {(plan.places ?? []).map((place) => (
            <li key={`${place.hostname}/${place.agent_id}`}>
              <strong>{place.agent_id}</strong>{" "}
              {place.devices.map((device) => device.device_id || device.slot).join(", ")}
            </li>
          ))}
        </ul>
      ) : null}
      <WhyDetails why={plan} />
    </>
  );
}

/** Names the values of a copied specification that its page does not have. */
export function HiddenValues({ spec }: { spec: Values }) {
  const hidden = hiddenIn(spec);
  return hidden.length === 0 ? null : (
    <Alert variant="default" color="yellow" title={t("form.hidden")}>
      {t("form.hiddenText", { fields: hidden.map((one) => visible(one)).join(", ") })}
    </Alert>
  );
}
