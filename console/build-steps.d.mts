import type { Plugin } from "vite";

export function usedStyles(): Plugin;
