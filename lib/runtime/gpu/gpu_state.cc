#include "lib/runtime/gpu/gpu_state.h"

#include <fmt/format.h>

#include "lib/support/strings.h"

namespace ktx::runtime {

int gpu_number(std::string_view device) {
  if (!device.starts_with("cuda:") || device.size() < 6 || device.size() > 7) return -1;
  int number = 0;
  for (char c : device.substr(5)) {
    if (c < '0' || c > '9') return -1;
    number = number * 10 + (c - '0');
  }
  return number;
}

Status PinnedMemory::pin(Gpu& gpu, std::byte* data, uint64_t bytes) {
  if (bytes == 0) return {};
  KTX_TRY(gpu.pin(data, bytes));
  gpu_ = &gpu;
  data_ = data;
  return {};
}

Status PinnedMemory::pin_read_only(Gpu& gpu, const std::byte* data, uint64_t bytes) {
  if (bytes == 0) return {};
  KTX_TRY(gpu.pin_read_only(data, bytes));
  gpu_ = &gpu;
  data_ = data;
  return {};
}

GpuState::~GpuState() {
  // Nothing may be in flight when memory goes.
  for (GpuDevice& device : devices) {
    if (device.gpu) (void)device.gpu->finish().ok();
  }
}

Error GpuState::in_step(uint32_t index, const std::string& device, const Error& error) const {
  const program::Step& step = program.steps[index];
  return Error{fmt::format("{}: step {} ({} of {}): {}", device, index, info(step.op).name,
                           printable(step.module), error.message)};
}

std::byte* GpuState::place(int device, uint32_t value) const {
  const program::Value& own = program.values[value];
  if (device < 0) return has_boundary(value) ? boundary_places.at(value).data : host.place(own);
  return devices[device].arena.data() + devices[device].layout.offsets[own.buffer];
}

}  // namespace ktx::runtime
