import type { Plugin } from "vite";

export function usedStyles(): Plugin;
export function firstPage(name: string): Plugin;
