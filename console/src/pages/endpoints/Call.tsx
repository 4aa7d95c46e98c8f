import { useQuery } from "@tanstack/react-query";
import { chatAddress } from "@/api/chat";
import { Command } from "@/parts/States";
import { t } from "@/texts";

/** Ready-made commands that call the endpoint. */
export function Call({ model }: { model: string }) {
  const address = useQuery({
    queryKey: ["address"],
    queryFn: chatAddress,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const base = address.data || t("call.proxy");
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "Hello" }] });
  return (
    <div className="stack">
      <h3 className="part-title">{t("call.curl")}</h3>
      <Command
        line={`curl ${base}/chat/completions -H "Authorization: Bearer $MOORAGE_KEY" \\\n  -H 'Content-Type: application/json' -d '${body.replaceAll("'", "'\\''")}'`}
      />
      <h3 className="part-title">{t("call.python")}</h3>
      <Command
        line={`from openai import OpenAI\n\nclient = OpenAI(base_url=${JSON.stringify(base)}, api_key=KEY)\nanswer = client.chat.completions.create(\n    model=${JSON.stringify(model)}, messages=[{"role": "user", "content": "Hello"}]\n)`}
      />
      <h3 className="part-title">{t("call.cli")}</h3>
      <Command line={`moorage chat ${model}`} />
    </div>
  );
}
