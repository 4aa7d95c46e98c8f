import { Code } from "@mantine/core";
import { useEffect, useState } from "react";
import { visible } from "@/parts/format";
import type { Values } from "./values";

/** A specification as YAML. Until the writer is loaded, it is JSON, which is YAML, too. */
export function SpecText({ label, value }: { label: string; value: Values }) {
  const json = JSON.stringify(value, null, 2);
  const [text, setText] = useState(json);
  useEffect(() => {
    let shown = true;
    void import("./yaml").then(({ write }) => shown && setText(write(JSON.parse(json), "yaml")));
    return () => {
      shown = false;
    };
  }, [json]);
  return (
    <Code block className="wrap" aria-label={label}>
      {text
        .split("\n")
        .map((line) => visible(line))
        .join("\n")}
    </Code>
  );
}
