import { createTheme, type MantineColorsTuple } from "@mantine/core";
import { DECIMAL } from "@/texts/locale";

// Shade 8 on white and shade 4 on the dark background reach a contrast of 4.5.
const harbor: MantineColorsTuple = [
  "#e6f6fb",
  "#cfe8f1",
  "#a3d2e3",
  "#73bad5",
  "#4ea7c9",
  "#369bc2",
  "#2489b0",
  "#15789d",
  "#0b6e8f",
  "#00536f",
];

export const theme = createTheme({
  primaryColor: "harbor",
  primaryShade: { light: 8, dark: 7 },
  colors: { harbor },
  autoContrast: true,
  cursorType: "pointer",
  defaultRadius: "sm",
  fontFamily: "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
  fontFamilyMonospace: "ui-monospace, 'SF Mono', Menlo, 'DejaVu Sans Mono', monospace",
  headings: { fontWeight: "600", sizes: { h1: { fontSize: "1.45rem" }, h2: { fontSize: "1.1rem" } } },
  components: {
    // A dialog must appear within 100 ms.
    Modal: { defaultProps: { transitionProps: { duration: 0 }, overlayProps: { blur: 0 }, centered: true } },
    Menu: { defaultProps: { transitionProps: { duration: 0 } } },
    Tooltip: { defaultProps: { transitionProps: { duration: 0 }, withArrow: true } },
    // A point is understood everywhere.
    NumberInput: { defaultProps: { decimalSeparator: DECIMAL, allowedDecimalSeparators: [".", ","] } },
    Select: { defaultProps: { comboboxProps: { transitionProps: { duration: 0 } } } },
    MultiSelect: { defaultProps: { comboboxProps: { transitionProps: { duration: 0 } } } },
  },
});
