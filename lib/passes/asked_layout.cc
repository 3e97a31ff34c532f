#include "lib/passes/asked_layout.h"

#include <fmt/format.h>

#include "lib/formats/layout_size.h"
#include "lib/target/host_device.h"

namespace ktx::passes {

std::optional<Layout> asked_layout(const ir::Decision& decision) {
  return decision.layout.empty() ? std::nullopt : layout_from_name(decision.layout);
}

std::string layout_obstacle(Layout layout, const std::string& device, DType dtype, int64_t rows,
                            int64_t cols, int64_t matrices) {
  const bool for_gpus = layout == Layout::Marlin, on_gpu = !target::is_cpu(device);
  if (layout == Layout::Rows) {
    return on_gpu && matrix_bytes(Layout::Marlin, dtype, rows, cols)
               ? fmt::format("GPUs read {} weights in tiles (marlin)", name(dtype))
               : "";
  }
  if (for_gpus != on_gpu) {
    return fmt::format("it is for {}, and the weights are on {}", for_gpus ? "GPUs" : "the CPU",
                       device);
  }
  if (!for_gpus && rows < kPanelRows) {
    return fmt::format("{} rows are fewer than the {} of a panel", rows, kPanelRows);
  }
  if (!for_gpus && matrices > 1 && rows % kPanelRows != 0) {
    return fmt::format("matrices of {} rows are no whole panels of {}", rows, kPanelRows);
  }
  if (!matrix_bytes(layout, dtype, rows, cols)) {
    return fmt::format("it has no form for {} weights of {} columns", name(dtype), cols);
  }
  return "";
}

}  // namespace ktx::passes
