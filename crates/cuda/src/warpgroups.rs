//! The text of `warpgroup_multiply` for `kernels/warpgroups.cuh`: an instruction whose operands are
//! one register for each number of the result, for each width of the result. C++ cannot count
//! operands.

use std::fmt::Write as _;

/// Columns of a result, in eights: of attention from 16 to 128, of linear layers 192.
const WIDTHS: [usize; 16] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24];

/// The functions for inputs of a 16-bit format.
pub(crate) fn multiplications(format: &str) -> String {
    let both = |tiles| from_shared_memory(tiles, format) + &from_registers(tiles, format);
    WIDTHS.map(both).concat()
}

/// The instruction for a result of `tiles` times eight columns. Operands follow those of the
/// result, and the last but `constants` says whether to add to what the result was.
fn instruction(tiles: usize, format: &str, operands: &str, add: usize, constants: &str) -> String {
    let result: Vec<String> = (0..4 * tiles).map(|index| format!("%{index}")).collect();
    let (result, columns) = (result.join(", "), 8 * tiles);
    let name = format!("wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{format}.{format}");
    format!(
        "    asm volatile(\"{{ .reg .pred add; setp.ne.b32 add, %{add}, 0; {name} {{{result}}}, \
         {operands}, add, 1, 1, {constants}; }}\"\n"
    )
}

/// The result as operands that are read and written.
fn results(tiles: usize) -> String {
    let mut text = String::from("        : ");
    for index in 0..4 * tiles {
        let comma = if index > 0 { ", " } else { "" };
        let _ = write!(text, "{comma}\"+f\"(sums[{}][{}])", index / 4, index % 4);
    }
    text
}

fn from_shared_memory(tiles: usize, format: &str) -> String {
    let [a, b, add, a_down, b_down] = operands_after(tiles);
    let operands = format!("%{a}, %{b}");
    format!(
        "template <int A_DOWN, int B_DOWN>\n\
         DEVICE void warpgroup_multiply(float (&sums)[{tiles}][4], u64 a, u64 b, u32 add) {{\n\
         {}{}\n        : \"l\"(a), \"l\"(b), \"r\"(add), \"n\"(A_DOWN), \"n\"(B_DOWN));\n}}\n",
        instruction(tiles, format, &operands, add, &format!("%{a_down}, %{b_down}")),
        results(tiles),
    )
}

fn from_registers(tiles: usize, format: &str) -> String {
    let [a0, a1, a2, a3, b, add, b_down] = operands_after(tiles);
    let operands = format!("{{%{a0}, %{a1}, %{a2}, %{a3}}}, %{b}");
    format!(
        "template <int B_DOWN>\n\
         DEVICE void warpgroup_multiply(float (&sums)[{tiles}][4], const u32 (&a)[4], u64 b, \
         u32 add) {{\n{}{}\n        : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \
         \"l\"(b), \"r\"(add), \"n\"(B_DOWN));\n}}\n",
        instruction(tiles, format, &operands, add, &format!("%{b_down}")),
        results(tiles),
    )
}

/// The numbers of the operands after those of the result.
fn operands_after<const COUNT: usize>(tiles: usize) -> [usize; COUNT] {
    std::array::from_fn(|index| 4 * tiles + index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_result_is_spelled_out() {
        let text = from_shared_memory(2, "bf16");
        let wanted = "m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, add, 1, 1, \
                      %11, %12;";
        assert!(text.contains(wanted), "{text}");
        assert!(text.contains("setp.ne.b32 add, %10, 0;"), "{text}");
        assert!(text.contains("\"+f\"(sums[1][3])\n"), "{text}");
        let text = from_registers(2, "f16");
        assert!(text.contains("{%8, %9, %10, %11}, %12, add, 1, 1, %14;"), "{text}");
        assert!(text.contains("setp.ne.b32 add, %13, 0;"), "{text}");
    }
}
