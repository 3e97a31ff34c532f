#include "lib/rules/target_yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>

#include "lib/rules/yaml_tree.h"
#include "lib/support/mapped_file.h"
#include "lib/support/quantity.h"
#include "lib/support/strings.h"
#include "lib/target/host_device.h"
#include "lib/target/isa.h"

namespace ktx::rules {
namespace {

constexpr size_t kMaxTargetBytes = 1u << 20;
constexpr int kMaxGpus = 64;
constexpr double kGiB = 1024.0 * 1024 * 1024;

class TargetParser {
 public:
  TargetParser(std::string path, DiagSink& diags) : path_(std::move(path)), diags_(diags) {}

  target::Target run(const std::string& text) {
    target::Target target;
    target.cpu.isa = Isa::Avx2;
    const YamlRef root = parse_yaml(text, path_, diags_);
    if (!root) return target;
    const YamlNode* hosts = nullptr;
    const YamlNode* cpu = nullptr;
    const YamlNode* gpus = nullptr;
    target::HostTarget usual;  // what entries of `hosts` do not say
    fields(*root, "the target",
           {{"name", [&](const YamlNode& n) { target.name = text_of(n, "name"); }},
            {"cpu",
             [&](const YamlNode& n) {
               cpu = &n;
               parse_cpu(n, target.cpu);
             }},
            {"gpus",
             [&](const YamlNode& n) {
               gpus = &n;
               parse_gpus(n, target.gpus);
             }},
            {"network", [&](const YamlNode& n) { parse_network(n, usual); }},
            {"hosts", [&](const YamlNode& n) { hosts = &n; }}});
    if (hosts == nullptr) return target;
    if (cpu != nullptr) {
      wrong(*cpu, "a target with `hosts` has the `cpu` of each in its entry, and none beside them");
    }
    parse_hosts(*hosts, usual, target);
    if (!target.hosts.empty()) take_first_gpus(gpus, target);
    return target;
  }

 private:
  using Fields = std::map<std::string, std::function<void(const YamlNode&)>>;

  void wrong(const YamlNode& node, std::string message) {
    diags_.error(node.loc, "Y003", std::move(message));
  }

  void fields(const YamlNode& node, std::string_view what, const Fields& known) {
    if (!node.is_map()) {
      return wrong(node, fmt::format("{} must be a map, not {}", what, name(node.kind)));
    }
    for (const auto& [key, value] : node.fields) {
      const auto field = known.find(key->text);
      if (field != known.end()) {
        field->second(*value);
        continue;
      }
      std::vector<std::string> names;
      for (const auto& [known_name, handler] : known) names.push_back(known_name);
      const std::string nearest = nearest_name(key->text, names);
      Diagnostic& diag =
          diags_.error(key->loc, "Y002",
                       fmt::format("unknown key '{}' in {}{}", printable(key->text), what,
                                   nearest.empty() ? "; keys are " + join(names, ", ")
                                                   : fmt::format("; did you mean '{}'?", nearest)));
      if (!nearest.empty()) diag.fix(key->loc, nearest);
    }
  }

  std::string text_of(const YamlNode& node, std::string_view key) {
    if (node.is_scalar()) return printable(node.text);
    wrong(node, fmt::format("`{}` must be a text, not {}", key, name(node.kind)));
    return "";
  }

  double number_of(const YamlNode& node, std::string_view key, double low, double high) {
    double value = 0;
    const std::string& text = node.text;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool ok = node.is_scalar() && error == std::errc() && end == text.data() + text.size() &&
                    std::isfinite(value) && value >= low && value <= high;
    if (ok) return value;
    wrong(node, fmt::format("`{}` must be a number from {:g} to {:g}", key, low, high));
    return low;
  }

  // GiB, or a size with its unit: 24, "24GB", "24576 MiB".
  uint64_t memory_of(const YamlNode& node, double most) {
    const bool has_unit =
        !node.text.empty() && std::isalpha(static_cast<unsigned char>(node.text.back())) != 0;
    if (!has_unit || !node.is_scalar()) {
      return static_cast<uint64_t>(number_of(node, "memory_gib", 0.001, most) * kGiB);
    }
    const auto bytes = parse_size(node.text, static_cast<int64_t>(most * kGiB));
    if (!bytes) {
      wrong(node, fmt::format("`memory_gib` must be a number from 0.001 to {:g}, or a size {}, not "
                              "'{}'",
                              most, kSizeForms, printable(node.text)));
    }
    return static_cast<uint64_t>(bytes.value_or(1 << 20));
  }

  // Main memory as it is sold (128, "64GB") is more than programs see of it: the kernel keeps 64
  // bytes for each page of 4096, the firmware and the kernel itself some 0.3 GiB (MemTotal of
  // machines with 16, 32, 64, 128 and 512: 15.5, 31.3, 62.7, 125.7, 503.7). A number with a point
  // is what was seen.
  uint64_t main_memory_of(const YamlNode& node) {
    constexpr uint64_t kSold = uint64_t{8} << 30, kFirmware = uint64_t{300} << 20;
    const uint64_t bytes = memory_of(node, 1e6);
    const bool sold =
        bytes >= kSold && bytes % kSold == 0 && node.text.find('.') == std::string::npos;
    if (!sold) return bytes;
    const uint64_t seen = bytes - bytes / 64 - kFirmware;
    diags_.note(
        node.loc, "",
        fmt::format("of {} that are installed programs see about {}, which counts here; write "
                    "what `ktx-run probe` says, or MemTotal of /proc/meminfo",
                    human_bytes(bytes), human_bytes(seen)));
    return seen;
  }

  void parse_cpu(const YamlNode& node, target::CpuTarget& cpu) {
    int numa_nodes = 1;
    fields(node, "`cpu`",
           {{"name", [&](const YamlNode& n) { cpu.model = text_of(n, "name"); }},
            {"isa", [&](const YamlNode& n) { parse_isa(n, cpu); }},
            {"cores",
             [&](const YamlNode& n) {
               cpu.cores = static_cast<int>(number_of(n, "cores", 1, 4096));
               cpu.hardware_threads = cpu.cores;
             }},
            {"memory_gib", [&](const YamlNode& n) { cpu.memory_bytes = main_memory_of(n); }},
            {"bandwidth_gbps",
             [&](const YamlNode& n) {
               cpu.bandwidth_gbps = number_of(n, "bandwidth_gbps", 0.001, 1e6);
             }},
            {"read_gbps",
             [&](const YamlNode& n) { cpu.read_gbps = number_of(n, "read_gbps", 0.001, 1e6); }},
            {"int8_tops",
             [&](const YamlNode& n) { cpu.int8_tops = number_of(n, "int8_tops", 0.0001, 1e5); }},
            {"disk_gbps",
             [&](const YamlNode& n) { cpu.disk_gbps = number_of(n, "disk_gbps", 0.001, 1e4); }},
            {"numa_nodes", [&](const YamlNode& n) {
               numa_nodes = static_cast<int>(number_of(n, "numa_nodes", 1, 64));
             }}});
    for (int id = 0; id < numa_nodes; ++id) {
      cpu.numa.push_back(
          {id, cpu.cores / numa_nodes, cpu.memory_bytes / static_cast<uint64_t>(numa_nodes)});
    }
  }

  void parse_network(const YamlNode& node, target::HostTarget& host) {
    fields(
        node, "`network`",
        {{"gbit", [&](const YamlNode& n) { host.network_gbit = number_of(n, "gbit", 0.001, 1e5); }},
         {"latency_us", [&](const YamlNode& n) {
            host.network_latency_us = number_of(n, "latency_us", 0.01, 1e7);
          }}});
  }

  void parse_hosts(const YamlNode& node, const target::HostTarget& usual, target::Target& target) {
    if (!node.is_list() || node.items.empty()) {
      return wrong(node, "`hosts` must be a list of machines, each with its name and its cpu");
    }
    for (const YamlRef& item : node.items) parse_host(*item, usual, target);
    if (!target.hosts.empty()) target.cpu = target.hosts.front().cpu;
  }

  // The first host's are those of the target.
  void take_first_gpus(const YamlNode* beside, target::Target& target) {
    std::vector<target::GpuTarget> own = std::move(target.hosts.front().gpus);
    target.hosts.front().gpus.clear();
    if (own.empty()) return;
    if (beside != nullptr && !target.gpus.empty()) {
      wrong(*beside,
            fmt::format("`gpus` outside of `hosts` are those of the first host, {}, which has some "
                        "in its entry; write all of them there",
                        target.hosts.front().name));
    }
    target.gpus = std::move(own);
  }

  void parse_host(const YamlNode& node, const target::HostTarget& usual, target::Target& target) {
    target::HostTarget host = usual;
    host.cpu.isa = Isa::Avx2;
    int count = 1;
    fields(node, "an entry of `hosts`",
           {{"name", [&](const YamlNode& n) { host.name = text_of(n, "name"); }},
            {"cpu", [&](const YamlNode& n) { parse_cpu(n, host.cpu); }},
            {"network", [&](const YamlNode& n) { parse_network(n, host); }},
            {"gpus", [&](const YamlNode& n) { parse_gpus(n, host.gpus); }},
            {"count", [&](const YamlNode& n) {
               count = static_cast<int>(number_of(n, "count", 1, target::kMaxHosts));
             }}});
    if (!node.is_map()) return;
    if (!target::is_host_name(host.name) || host.name.size() > 60) {
      return wrong(node,
                   fmt::format("a host needs a name of letters, digits, '-', '_' and '.', not "
                               "'{}'",
                               printable(host.name)));
    }
    const std::string name = host.name;
    for (int i = 1; i <= count; ++i) {
      if (count > 1) host.name = fmt::format("{}{}", name, i);
      const auto same = [&](const target::HostTarget& other) { return other.name == host.name; };
      if (std::ranges::any_of(target.hosts, same)) {
        return wrong(node, fmt::format("two hosts have the name '{}'", host.name));
      }
      if (target.hosts.size() >= target::kMaxHosts) {
        return wrong(node, fmt::format("more than {} hosts", target::kMaxHosts));
      }
      target.hosts.push_back(host);
    }
  }

  void parse_isa(const YamlNode& node, target::CpuTarget& cpu) {
    const std::string isa = text_of(node, "isa");
    std::vector<std::string> known;
    for (const IsaInfo& row : all_isas()) known.emplace_back(row.name);
    if (const auto known_isa = isa_from_name(isa)) {
      cpu.isa = *known_isa;
      return;
    }
    const std::string nearest = nearest_name(isa, known);
    wrong(node, fmt::format("unknown isa '{}'{}", isa,
                            nearest.empty() ? "; one of " + join(known, ", ")
                                            : fmt::format("; did you mean '{}'?", nearest)));
  }

  void parse_gpus(const YamlNode& node, std::vector<target::GpuTarget>& gpus) {
    if (node.is_null()) return;
    if (!node.is_list()) {
      return wrong(node, fmt::format("`gpus` must be a list, not {}", name(node.kind)));
    }
    for (const YamlRef& item : node.items) {
      target::GpuTarget gpu;
      int count = 1;
      fields(
          *item, "an entry of `gpus`",
          {{"name", [&](const YamlNode& n) { gpu.name = text_of(n, "name"); }},
           {"compute_capability", [&](const YamlNode& n) { parse_capability(n, gpu); }},
           {"memory_gib", [&](const YamlNode& n) { gpu.memory_bytes = memory_of(n, 1e5); }},
           {"bandwidth_gbps",
            [&](const YamlNode& n) {
              gpu.bandwidth_gbps = number_of(n, "bandwidth_gbps", 0.001, 1e6);
            }},
           {"pcie_gbps",
            [&](const YamlNode& n) { gpu.pcie_gbps = number_of(n, "pcie_gbps", 0.001, 1e5); }},
           {"peer_gbps",
            [&](const YamlNode& n) { gpu.peer_gbps = number_of(n, "peer_gbps", 0.001, 1e5); }},
           {"peer_write_gbps",
            [&](const YamlNode& n) {
              gpu.peer_write_gbps = number_of(n, "peer_write_gbps", 0.001, 1e5);
            }},
           {"peer_both_gbps",
            [&](const YamlNode& n) {
              gpu.peer_both_gbps = number_of(n, "peer_both_gbps", 0.001, 1e5);
            }},
           {"sum_us", [&](const YamlNode& n) { gpu.sum_us = number_of(n, "sum_us", 0.01, 1e6); }},
           {"sum_mib_us",
            [&](const YamlNode& n) { gpu.sum_mib_us = number_of(n, "sum_mib_us", 0.01, 1e7); }},
           {"read_gbps",
            [&](const YamlNode& n) { gpu.read_gbps = number_of(n, "read_gbps", 0.001, 1e6); }},
           {"tflops", [&](const YamlNode& n) { gpu.tflops = number_of(n, "tflops", 0.001, 1e6); }},
           {"launch_us",
            [&](const YamlNode& n) { gpu.launch_us = number_of(n, "launch_us", 0.01, 1e4); }},
           {"hand_over_us",
            [&](const YamlNode& n) { gpu.hand_over_us = number_of(n, "hand_over_us", 0.01, 1e5); }},
           {"sms",
            [&](const YamlNode& n) {
              gpu.multiprocessors = static_cast<int>(number_of(n, "sms", 1, 1e4));
            }},
           {"count", [&](const YamlNode& n) {
              count = static_cast<int>(number_of(n, "count", 1, kMaxGpus));
            }}});
      if (gpu.name.empty()) gpu.name = "GPU";
      if (item->is_map() && gpu.compute_major == 0) {
        wrong(*item, "a GPU needs its compute_capability, such as 8.9");
      }
      for (int i = 0; i < count; ++i) {
        if (gpus.size() >= kMaxGpus) {
          return wrong(*item, fmt::format("more than {} GPUs", kMaxGpus));
        }
        gpus.push_back(gpu);
      }
    }
  }

  // "8.9" or "sm_89".
  void parse_capability(const YamlNode& node, target::GpuTarget& gpu) {
    std::string text = node.text;
    if (text.starts_with("sm_")) text = text.substr(3);
    int major = 0, minor = 0;
    const size_t dot = text.find('.');
    const auto read = [](std::string_view part, int& out) {
      const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), out);
      return error == std::errc() && end == part.data() + part.size() && !part.empty();
    };
    bool ok = false;
    if (dot != std::string::npos) {
      ok = read(std::string_view(text).substr(0, dot), major) &&
           read(std::string_view(text).substr(dot + 1), minor);
    } else if (read(text, major)) {
      ok = true;
      if (major >= 20) {
        minor = major % 10;
        major /= 10;
      }
    }
    if (!ok || major < 1 || major > 99 || minor < 0 || minor > 9) {
      return wrong(
          node, fmt::format("compute_capability must be like 8.9, not '{}'", printable(node.text)));
    }
    gpu.compute_major = major;
    gpu.compute_minor = minor;
  }

  std::string path_;
  DiagSink& diags_;
};

}  // namespace

target::Target parse_target(const std::string& text, const std::string& path, DiagSink& diags) {
  return TargetParser(path, diags).run(text);
}

Result<target::Target> read_target(const std::string& path, DiagSink& diags) {
  const std::string text = KTX_TRY(read_text_file(path, kMaxTargetBytes));
  return parse_target(text, path, diags);
}

}  // namespace ktx::rules
