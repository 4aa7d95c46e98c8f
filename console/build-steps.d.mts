import type { Plugin } from "vite";

export function usedStyles(): Plugin;
export function firstPageInBrotli(): Plugin;
