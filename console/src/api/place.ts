/** The address of this module: in a build, a file in the console's folder `assets`. */
const MODULE = import.meta.url;

/** The path below which this browser sees the manager: a web server in front may add a prefix, such as "/mgr". */
export const PREFIX = import.meta.env.DEV ? "" : new URL("../..", MODULE).pathname.replace(/\/$/, "");

/** The path of the console. */
export const CONSOLE = `${PREFIX}/console`;

/** The address of the manager, for a browser or a command. */
export const MANAGER = `${window.location.origin}${PREFIX}`;
