import { Button, FileButton, Group, List, Progress, Select, Text, TextInput } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { type DragEvent, type FormEvent, useEffect, useMemo, useRef, useState } from "react";
import type { Schemas, Session } from "@/api/client";
import {
  CutOff,
  cancelUpload,
  directoryQuery,
  download,
  forgetUploads,
  type Upload,
  upload,
  useUploads,
} from "@/api/files";
import { Confirm, useAction } from "@/parts/actions";
import { type Column, DataTable } from "@/parts/DataTable";
import { bytes, visible } from "@/parts/format";
import { useListView } from "@/parts/listView";
import { Empty, Loaded, Problem } from "@/parts/States";
import { Age } from "@/parts/Time";
import { t } from "@/texts";
import { kernelsOf } from "./Logs";

type Directory = Schemas["DirectoryView"];
type Entry = Schemas["FileView"];

const START = ".";
const below = (directory: string, name: string) => `${directory.replace(/\/$/, "")}/${name}`;
const above = (directory: string) => directory.slice(0, directory.lastIndexOf("/")) || "/";

/** The files of a running session. The directory is in the address, so that a reload and a link show it. */
export default function Files({ session }: { session: Session }) {
  const kernels = kernelsOf(session);
  const [kernel, setKernel] = useState(kernels[0] ?? "main1");
  const { path = START } = useSearch({ from: "/sessions/$ref" });
  const navigate = useNavigate({ from: "/sessions/$ref" });
  const directory = useQuery(directoryQuery(session.id, kernel, path));
  const open = (wanted: string) =>
    void navigate({
      search: (before) => ({ tab: before.tab, path: wanted === START ? undefined : wanted }),
    });
  return (
    <>
      <Place
        path={directory.data?.path ?? path}
        open={open}
        refresh={() => void directory.refetch()}
        busy={directory.isFetching}
      >
        {kernels.length > 1 ? (
          <Select
            size="xs"
            label={t("session.kernel")}
            allowDeselect={false}
            data={kernels}
            value={kernel}
            onChange={(value) => setKernel(value ?? "main1")}
          />
        ) : null}
      </Place>
      <Uploads session={session.id} />
      <Loaded query={directory} height={240}>
        {(found) => (
          <>
            {/* What was read before stays, with the reason why it could not be read again. */}
            {directory.error ? <Problem error={directory.error} /> : null}
            <Listed session={session} kernel={kernel} directory={found} open={open} />
          </>
        )}
      </Loaded>
    </>
  );
}

/** Where the user is, and how to get elsewhere. */
function Place({
  path,
  open,
  refresh,
  busy,
  children,
}: {
  path: string;
  open: (path: string) => void;
  refresh: () => void;
  busy: boolean;
  children: React.ReactNode;
}) {
  const [typed, setTyped] = useState(path);
  useEffect(() => setTyped(path), [path]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    open(typed.trim() || START);
  };
  return (
    <form onSubmit={submit} className="place">
      <TextInput
        size="xs"
        className="place-path"
        label={t("files.directory")}
        value={typed}
        dir="ltr"
        spellCheck={false}
        onChange={(event) => setTyped(event.currentTarget.value)}
      />
      {children}
      <Group gap="xs">
        <Button size="xs" type="submit" variant="default" loading={busy}>
          {t("files.open")}
        </Button>
        <Button
          size="xs"
          variant="default"
          disabled={!path.startsWith("/") || path === "/"}
          onClick={() => open(above(path))}
        >
          {t("files.up")}
        </Button>
        <Button size="xs" variant="default" onClick={() => open(START)}>
          {t("files.start")}
        </Button>
        <Button size="xs" variant="default" onClick={refresh}>
          {t("files.refresh")}
        </Button>
      </Group>
    </form>
  );
}

function Listed({
  session,
  kernel,
  directory,
  open,
}: {
  session: Session;
  kernel: string;
  directory: Directory;
  open: (path: string) => void;
}) {
  const client = useQueryClient();
  const view = useListView();
  const [asked, setAsked] = useState<{ files: File[]; replaced: string[] } | null>(null);
  const [refused, setRefused] = useState<string[]>([]);
  const [over, setOver] = useState(false);
  const reset = useRef<() => void>(null);
  const columns = useMemo(
    () => columnsOf(session.id, kernel, directory.path, open),
    [session.id, kernel, directory.path, open],
  );
  const store = (files: File[]) =>
    upload(client, { session: session.id, kernel, directory: directory.path }, files);
  const take = (files: File[], folders: string[]) => {
    const kinds = new Map(directory.files.map((file) => [file.name, file.kind]));
    const taken = files.filter((file) => (kinds.get(file.name) ?? "file") === "file");
    const others = files.filter((file) => !taken.includes(file));
    setRefused([
      ...folders.map((name) => t("files.folder", { name: visible(name), session: session.name })),
      ...others.map((file) => t("files.taken", { name: visible(file.name) })),
    ]);
    const replaced = taken.filter((file) => kinds.has(file.name)).map((file) => file.name);
    if (replaced.length > 0) {
      setAsked({ files: taken, replaced });
    } else {
      store(taken);
    }
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const files: File[] = [];
    const folders: string[] = [];
    for (const item of event.dataTransfer.items) {
      const entry = item.webkitGetAsEntry();
      const file = item.getAsFile();
      if (entry?.isDirectory) {
        folders.push(entry.name);
      } else if (file) {
        files.push(file);
      }
    }
    take(files, folders);
  };
  return (
    <section
      className="drop"
      aria-label={t("files.dropLabel")}
      data-over={over || undefined}
      onDragOver={(event) => {
        if (event.dataTransfer.types.includes("Files")) {
          event.preventDefault();
          setOver(true);
        }
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      <Group gap="sm" mb="sm">
        <FileButton
          multiple
          resetRef={reset}
          onChange={(files) => {
            take(files, []);
            reset.current?.(); // otherwise the same file could not be chosen again
          }}
        >
          {(props) => (
            <Button size="xs" {...props}>
              {t("files.upload")}
            </Button>
          )}
        </FileButton>
        <Text size="sm" className="dim">
          {t("files.dropHere")}
        </Text>
      </Group>
      {refused.length > 0 ? (
        <div role="alert">
          <List size="sm" mb="sm" className="wrap">
            {refused.map((line) => (
              <List.Item key={line}>{line}</List.Item>
            ))}
          </List>
        </div>
      ) : null}
      <DataTable
        label={t("session.files")}
        rows={directory.files}
        id={(file) => file.name}
        columns={columns}
        view={view}
        searched={(file) => file.name}
        empty={<Empty title={t("files.empty")} />}
      />
      {directory.complete ? null : (
        <Text size="sm" className="dim" role="note">
          {t("files.more", { count: directory.files.length })}
        </Text>
      )}
      {asked ? (
        <Confirm
          title={t("files.replaceTitle", { count: asked.replaced.length })}
          consequences={[
            t("files.replaceText", { path: visible(directory.path) }),
            ...asked.replaced.map(visible),
          ]}
          verb={t("files.replace")}
          act={async () => store(asked.files)}
          close={() => setAsked(null)}
        />
      ) : null}
    </section>
  );
}

function columnsOf(
  session: string,
  kernel: string,
  directory: string,
  open: (path: string) => void,
): Column<Entry>[] {
  return [
    {
      key: "name",
      header: t("field.name"),
      // Directories come first.
      sort: (file) => `${file.kind === "directory" ? 0 : 1}${file.name}`,
      line: (file) => visible(file.name),
      cell: (file) =>
        file.kind === "directory" ? (
          <button type="button" className="file-link" onClick={() => open(below(directory, file.name))}>
            {visible(file.name)}/
          </button>
        ) : (
          visible(file.name)
        ),
    },
    {
      key: "kind",
      header: t("field.type"),
      wide: true,
      sort: (file) => file.kind,
      cell: (file) =>
        file.link ? t("files.link", { kind: t(`files.kinds.${file.kind}`) }) : t(`files.kinds.${file.kind}`),
    },
    {
      key: "size",
      header: t("files.size"),
      right: true,
      sort: (file) => file.size,
      cell: (file) => (file.size == null ? "–" : bytes(file.size)),
    },
    {
      key: "changed",
      header: t("files.changed"),
      wide: true,
      sort: (file) => file.changed_at,
      cell: (file) => <Age at={file.changed_at} />,
    },
    {
      key: "action",
      header: t("field.action"),
      cell: (file) =>
        file.kind === "other" ? (
          "–"
        ) : (
          <Download session={session} kernel={kernel} path={below(directory, file.name)} file={file} />
        ),
    },
  ];
}

function Download({
  session,
  kernel,
  path,
  file,
}: {
  session: string;
  kernel: string;
  path: string;
  file: Entry;
}) {
  const action = useAction(
    () => download(session, kernel, path),
    () => t("files.downloading", { name: visible(file.name) }),
  );
  const verb = t(file.kind === "directory" ? "files.downloadTar" : "files.download");
  return (
    <>
      <Button
        size="xs"
        variant="default"
        aria-label={t("files.downloadOf", { verb, name: visible(file.name) })}
        loading={action.isPending}
        onClick={() => action.mutate()}
      >
        {verb}
      </Button>
      {action.error ? <Problem error={action.error} /> : null}
    </>
  );
}

function Uploads({ session }: { session: string }) {
  const uploads = useUploads().filter((one) => one.session === session);
  if (uploads.length === 0) {
    return null;
  }
  const over = uploads.every(({ state }) => state !== "sending" && state !== "waiting");
  return (
    <section aria-label={t("files.uploads")} className="uploads">
      <Group justify="space-between" mb="xs">
        <h2 className="part-title">{t("files.uploads")}</h2>
        {over ? (
          <Button size="xs" variant="subtle" onClick={() => forgetUploads(session)}>
            {t("files.clear")}
          </Button>
        ) : null}
      </Group>
      {uploads.map((one) => (
        <UploadLine key={one.id} upload={one} />
      ))}
    </section>
  );
}

function UploadLine({ upload: one }: { upload: Upload }) {
  const share = one.size === 0 ? 0 : Math.round((100 * one.sent) / one.size);
  const running = one.state === "sending" || one.state === "waiting";
  return (
    <div className="upload">
      <Group justify="space-between" gap="xs" wrap="nowrap">
        <Text size="sm" className="line-text" title={visible(one.path)}>
          {visible(one.name)}
        </Text>
        <Group gap="xs" wrap="nowrap">
          <Text size="sm" className="dim upload-state" role="status">
            {one.state === "sending"
              ? t("files.sent", { sent: bytes(one.sent), size: bytes(one.size) })
              : t(`files.${one.state}`)}
          </Text>
          {running ? (
            <Button
              size="compact-xs"
              variant="default"
              aria-label={t("files.cancelOf", { name: visible(one.name) })}
              onClick={() => cancelUpload(one.id)}
            >
              {t("action.cancel")}
            </Button>
          ) : null}
        </Group>
      </Group>
      {one.state === "sending" ? (
        <Progress
          value={share}
          size="sm"
          mt={4}
          aria-label={t("files.progressOf", { name: visible(one.name) })}
        />
      ) : null}
      {one.state === "failed" ? (
        one.error instanceof CutOff ? (
          <Text size="sm" role="alert">
            {t("files.cutOff")}
          </Text>
        ) : (
          <Problem error={one.error} />
        )
      ) : null}
    </div>
  );
}
