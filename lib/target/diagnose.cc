#include "lib/target/diagnose.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <utility>

#include "lib/support/strings.h"
#include "lib/target/gpu_generation.h"
#include "lib/target/proc_text.h"

namespace ktx::target {
namespace {

// Below this a plan of a small model and its cache do not fit.
constexpr uint64_t kLittleMemory = uint64_t{1} << 30;
// A server takes a descriptor for each connection.
constexpr uint64_t kFewFiles = 1024;

Finding processor(const CpuTarget& cpu) {
  std::string text =
      fmt::format("{}: {} cores, {} hardware threads", cpu.model.empty() ? "unknown" : cpu.model,
                  cpu.cores, cpu.hardware_threads);
  if (cpu.cpu_quota) {
    return {"processor", Health::Note,
            fmt::format("{}; a control group allows {:.1f} of them", text, *cpu.cpu_quota),
            "more CPUs for the container or service make it faster"};
  }
  return {"processor", Health::Ok, std::move(text), ""};
}

Finding instructions(Isa isa) {
  const IsaInfo* next = nullptr;
  for (const IsaInfo& row : all_isas()) {
    if (row.isa > isa && is_of_this_kind(row.kind) && next == nullptr) next = &row;
  }
  const std::string text = fmt::format("kernels of {}", name(isa));
  if (isa == Isa::Scalar) {
    return {"instructions", Health::Note, text,
            fmt::format("the processor lacks {}; answers are right, but many times slower",
                        next->needs)};
  }
  return {"instructions", Health::Ok,
          next ? fmt::format("{} (no {}: {})", text, next->name, next->needs) : text, ""};
}

Finding memory(const CpuTarget& cpu, const std::string& root) {
  const std::optional<uint64_t> available = available_memory(root);
  if (cpu.memory_bytes == 0 || !available) {
    return {"memory", Health::Note, "unknown", "/proc/meminfo cannot be read"};
  }
  const std::string text = fmt::format("{}, of which {} are free", human_bytes(cpu.memory_bytes),
                                       human_bytes(*available));
  if (*available < kLittleMemory) {
    return {"memory", Health::Problem, text,
            "most models need more: end other programs, or raise the container's limit"};
  }
  return {"memory", Health::Ok, text, ""};
}

// "always [madvise] never" -> "madvise".
std::string chosen(std::string_view text) {
  const size_t begin = text.find('['), end = text.find(']');
  if (begin == text.npos || end == text.npos || end < begin) return "";
  return printable(std::string(text.substr(begin + 1, end - begin - 1)));
}

Finding huge_pages(const std::string& root) {
  const std::string file = "/sys/kernel/mm/transparent_hugepage/enabled";
  const auto text = read_proc(root + file);
  const std::string mode = text ? chosen(*text) : "";
  if (mode.empty()) return {"huge pages", Health::Note, "this kernel has none", ""};
  if (mode == "never") {
    return {"huge pages", Health::Note, "transparent: never",
            fmt::format("--huge-pages has no effect until: echo madvise > {}", file)};
  }
  return {"huge pages", Health::Ok, "transparent: " + mode, ""};
}

Finding numa(const CpuTarget& cpu) {
  if (cpu.numa.empty()) return {"NUMA", Health::Ok, "one node, or unknown", ""};
  std::string text = fmt::format("{} node{}", cpu.numa.size(), cpu.numa.size() == 1 ? "" : "s");
  for (const NumaNode& node : cpu.numa) {
    text += fmt::format("{} {} with {} threads and {}", node.id == cpu.numa[0].id ? ":" : ",",
                        node.id, node.cpus, human_bytes(node.memory_bytes));
    if (node.memory_bytes == 0 && node.cpus > 0) {
      return {"NUMA", Health::Note, text,
              "a node without memory reads all weights from another; see numactl --hardware"};
    }
  }
  return {"NUMA", Health::Ok, text, ""};
}

std::string shown_limit(rlim_t limit, bool bytes) {
  if (limit == RLIM_INFINITY) return "unlimited";
  return bytes ? human_bytes(limit) : std::to_string(limit);
}

Finding limits() {
  rlimit files = {}, space = {};
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_AS, &space);
  const std::string text =
      fmt::format("open files {}, address space {}", shown_limit(files.rlim_max, false),
                  shown_limit(space.rlim_cur, true));
  if (space.rlim_cur != RLIM_INFINITY) {
    return {"limits", Health::Problem, text,
            "plans are mapped whole: lift it with ulimit -v unlimited"};
  }
  if (files.rlim_max < kFewFiles) {
    return {"limits", Health::Note, text,
            "a server needs one for each connection: ulimit -n 65536"};
  }
  return {"limits", Health::Ok, text, ""};
}

Finding driver(const GpuFacts& facts) {
  if (!facts.problem.empty()) {
    // A missing driver is no problem where no GPU is meant to be used.
    return {"GPU driver", facts.has_kernels ? Health::Note : Health::Ok, "none", facts.problem};
  }
  const std::string text =
      fmt::format("CUDA {}.{}", facts.driver_version / 1000, facts.driver_version % 1000 / 10);
  if (facts.driver_version < facts.oldest_driver) {
    return {"GPU driver", Health::Problem, text,
            fmt::format("this program needs a driver of CUDA {}.{} or newer; install one",
                        facts.oldest_driver / 1000, facts.oldest_driver % 1000 / 10)};
  }
  return {"GPU driver", Health::Ok, text, ""};
}

Finding gpu(const GpuTarget& gpu, const GpuFacts& facts) {
  std::string text = fmt::format("{}, compute capability {}.{}, {}", gpu.name, gpu.compute_major,
                                 gpu.compute_minor, human_bytes(gpu.memory_bytes));
  if (too_old(gpu)) {
    return {"GPU", Health::Problem, std::move(text),
            fmt::format("compute capability {} or newer is needed", oldest_gpu())};
  }
  if (!facts.has_kernels) {
    return {"GPU", Health::Note, std::move(text),
            "this build has no kernels of GPUs; build with tools/dev/quickstart --gpu"};
  }
  return {"GPU", Health::Ok, std::move(text), ""};
}

}  // namespace

std::string_view name(Health health) {
  constexpr std::string_view kNames[] = {"ok", "note", "problem"};
  return kNames[static_cast<size_t>(health)];
}

Diagnosis diagnose(const GpuFacts& gpus, Isa isa, const std::string& root) {
  const Target host = detect_host(root);
  Diagnosis out;
  out.findings = {processor(host.cpu), instructions(isa), memory(host.cpu, root),
                  huge_pages(root),    numa(host.cpu),    limits(),
                  driver(gpus)};
  out.runs_on_cpu = true;
  for (const Finding& finding : out.findings) {
    if (finding.what != "GPU driver" && finding.health == Health::Problem) out.runs_on_cpu = false;
  }
  const bool driver_ok = gpus.problem.empty() && out.findings.back().health == Health::Ok;
  for (const GpuTarget& one : gpus.gpus) {
    out.findings.push_back(gpu(one, gpus));
    if (driver_ok && out.findings.back().health == Health::Ok) out.runs_on_gpu = true;
  }
  return out;
}

}  // namespace ktx::target
