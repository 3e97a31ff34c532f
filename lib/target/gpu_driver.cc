#include "lib/target/gpu_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "lib/support/strings.h"

namespace ktx::target {
namespace {

// The driver's C interface, as its ABI has it since CUDA 3.2.
using Code = int;
using Device = int;
struct Calls {
  Code (*init)(unsigned flags) = nullptr;
  Code (*version)(int* version) = nullptr;
  Code (*count)(int* count) = nullptr;
  Code (*get)(Device* device, int number) = nullptr;
  Code (*name)(char* name, int size, Device device) = nullptr;
  Code (*memory)(size_t* bytes, Device device) = nullptr;
  Code (*attribute)(int* value, int attribute, Device device) = nullptr;
};

// Numbers of CUdevice_attribute.
constexpr int kMultiprocessors = 16;
constexpr int kMemoryClockKhz = 36;
constexpr int kBusWidthBits = 37;
constexpr int kComputeMajor = 75;
constexpr int kComputeMinor = 76;

template <class Fn>
bool find(void* library, const char* symbol, Fn& out) {
  out = reinterpret_cast<Fn>(dlsym(library, symbol));
  return out != nullptr;
}

GpuTarget describe(const Calls& calls, Device device) {
  GpuTarget gpu;
  char name[256] = {};
  size_t bytes = 0;
  int clock_khz = 0, bus_bits = 0;
  if (calls.name(name, sizeof(name) - 1, device) == 0) gpu.name = printable(std::string(name));
  if (calls.memory(&bytes, device) == 0) gpu.memory_bytes = bytes;
  calls.attribute(&gpu.compute_major, kComputeMajor, device);
  calls.attribute(&gpu.compute_minor, kComputeMinor, device);
  calls.attribute(&gpu.multiprocessors, kMultiprocessors, device);
  calls.attribute(&clock_khz, kMemoryClockKhz, device);
  calls.attribute(&bus_bits, kBusWidthBits, device);
  gpu.bandwidth_gbps = 2.0 * clock_khz * 1e3 * bus_bits / 8 / 1e9;  // two transfers a clock
  return gpu;
}

}  // namespace

GpuDriver GpuDriver::open() {
  GpuDriver driver;
  // Never closed: the driver does not like it, and others of this process may use it.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    driver.problem_ =
        "no NVIDIA driver here (libcuda.so.1 cannot be opened); install one, or "
        "compile for the CPU";
    return driver;
  }
  Calls calls;
  if (!find(library, "cuInit", calls.init) || !find(library, "cuDriverGetVersion", calls.version) ||
      !find(library, "cuDeviceGetCount", calls.count) || !find(library, "cuDeviceGet", calls.get) ||
      !find(library, "cuDeviceGetName", calls.name) ||
      !find(library, "cuDeviceTotalMem_v2", calls.memory) ||
      !find(library, "cuDeviceGetAttribute", calls.attribute)) {
    driver.problem_ = "libcuda.so.1 is no NVIDIA driver that can be used; install a newer one";
    return driver;
  }
  calls.version(&driver.version_);
  int count = 0;
  Code code = calls.init(0);
  if (code == 0) code = calls.count(&count);
  if (code != 0 || count == 0) {
    driver.problem_ = fmt::format(
        "the NVIDIA driver shows no GPU (code {}); see nvidia-smi and CUDA_VISIBLE_DEVICES", code);
    return driver;
  }
  for (int i = 0; i < count; ++i) {
    Device device = 0;
    if (calls.get(&device, i) == 0) driver.gpus_.push_back(describe(calls, device));
  }
  return driver;
}

std::vector<GpuTarget> detect_gpus() {
  return GpuDriver::open().gpus();
}

}  // namespace ktx::target
