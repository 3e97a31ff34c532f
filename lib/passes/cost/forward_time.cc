#include "lib/passes/cost/forward_time.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "kernels/gpu/gpu_limits.h"
#include "lib/formats/layout_size.h"
#include "lib/passes/cost/target_devices.h"
#include "lib/program/joint_experts.h"
#include "lib/program/parts.h"
#include "lib/program/program.h"
#include "lib/program/streams.h"
#include "lib/target/gpu_generation.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

using program::Part;
using program::Step;
using target::device_id;
using target::DeviceId;

// The share of rated bandwidth that decode reaches where nothing is measured.
constexpr double kGpuReadShare = 0.9;
// Pinned memory over PCIe 4.0 x16, as it is reached.
constexpr double kPcieRate = 20e9;
// Measured on an H200 (bench/2026-11-gpu-decode.md), assumed elsewhere.
constexpr double kLaunchSeconds = 2.9e-6;
// Kernels of more than one token take this many times as long, apart from their weights: for few
// tokens (Llama-3.1-8B, 164 kernels: 4.9, 5.2 and 6.6 us with 2, 4 and 8 tokens; Qwen3-30B-A3B,
// 437: 5.4 with 4), and for prompts.
constexpr double kFewTokens = 5.2 / 2.9, kMoreTokens = 4.4 / 2.9;
constexpr int64_t kMostSkinnyTokens = 16;
// Products of attention, beside those with weights.
constexpr double kAttentionShare = 0.5;

// int8 operations a second that a core reaches in long products (docs/performance.md).
constexpr struct {
  Isa isa;
  double rate;
} kCoreRates[] = {{Isa::Scalar, 4e9}, {Isa::Avx2, 1e11}, {Isa::Avx512, 2e11},
                  {Isa::Amx, 2.5e11}, {Isa::Neon, 2e10}, {Isa::Dotprod, 8e10}};  // ARM's: assumed

// Operations a second of an SM in long products with activations in F16: half of the tensor
// cores' rate; on Hopper what was measured.
constexpr struct {
  int sm;
  double rate;
} kSmRates[] = {{75, 0.8e12}, {80, 1.45e12}, {86, 0.45e12}, {89, 0.65e12},
                {90, 2.6e12}, {100, 2.6e12}, {120, 0.6e12}};

double sm_rate(int generation) {
  double rate = kSmRates[0].rate;
  for (const auto& row : kSmRates) {
    if (row.sm <= generation) rate = row.rate;
  }
  return rate;
}

DeviceRates cpu_rates(const target::CpuTarget& cpu) {
  DeviceRates rates;
  rates.read_measured = cpu.read_gbps > 0;
  rates.read = (rates.read_measured ? cpu.read_gbps : cpu.bandwidth_gbps * kCpuReadShare) * 1e9;
  double core = kCoreRates[0].rate;
  for (const auto& row : kCoreRates) {
    if (row.isa <= cpu.isa) core = row.rate;
  }
  rates.arithmetic = cpu.int8_tops > 0 ? cpu.int8_tops * 1e12 : core * std::max(cpu.cores, 1);
  return rates;
}

DeviceRates gpu_rates(const target::GpuTarget& gpu) {
  const int generation = target::generation(gpu);
  const int sms = gpu.multiprocessors > 0 ? gpu.multiprocessors
                                          : kernels::gpu_machine(generation).multiprocessors;
  DeviceRates rates;
  rates.read_measured = gpu.read_gbps > 0;
  rates.read = (rates.read_measured ? gpu.read_gbps : gpu.bandwidth_gbps * kGpuReadShare) * 1e9;
  rates.arithmetic = gpu.tflops > 0 ? gpu.tflops * 1e12 : sm_rate(generation) * sms;
  rates.launch = gpu.launch_us > 0 ? gpu.launch_us * 1e-6 : kLaunchSeconds;
  rates.hand_over = gpu.hand_over_us > 0 ? gpu.hand_over_us * 1e-6 : kHandOverSeconds;
  rates.pcie = gpu.pcie_gbps > 0 ? gpu.pcie_gbps * 1e9 : kPcieRate;
  rates.peer = gpu.peer_gbps * 1e9;
  rates.between = rates.peer > 0           ? rates.peer
                  : gpu.peer_both_gbps > 0 ? gpu.peer_both_gbps * 1e9
                                           : rates.pcie;
  rates.sum = gpu.sum_us * 1e-6;
  rates.sum_mib = gpu.sum_mib_us * 1e-6;
  return rates;
}

// Sums of `bytes` on each GPU, of which a GPU takes those of `others`. Through the host's memory
// each float has a number beside it, and goes there and back.
double small_sum(const DeviceRates& rates, double bytes, double others) {
  constexpr double kSmall = 16 << 10, kLarge = 1 << 20;  // of sum and sum_mib
  if (rates.sum > 0) {
    const double more = std::max(0.0, bytes - kSmall) / (kLarge - kSmall);
    return kSumWaitSeconds + rates.sum + more * std::max(0.0, rates.sum_mib - rates.sum);
  }
  if (rates.peer > 0) return kSmallSumSeconds + bytes * others / rates.peer;
  return kHostSumSeconds + 4 * bytes * others / std::max(rates.pcie, 1.0);
}
double large_sum(const DeviceRates& rates, double bytes, double others) {
  const double start = rates.peer > 0 ? kSumSeconds : kCopiedSumSeconds;
  return start + bytes * others / std::max(rates.between, 1.0);
}

// The work on the matrices of a step: bytes that a pass of some tokens reads, and operations.
struct Work {
  double bytes = 0;
  double operations = 0;
};

class Predictor {
 public:
  Predictor(const program::Program& program, const target::Target& target,
            const ForwardShape& shape)
      : target_(target),
        tokens_(shape.tokens),
        before_(shape.before),
        slots_(shape.slots),
        joint_(shape.joint),
        program_(program),
        waits_(program::find_cpu_waits(program)) {
    time_.tokens = tokens_;
    const auto least = program::stream_tokens(program);
    if (least && *least > 0 && tokens_ >= *least) {
      for (const program::Stream& s : program::streams_of(program)) {
        streams_.emplace(s.part, s.device);
      }
    }
  }

  ForwardTime run() {
    find_alone();
    for (const Part& part : program_.parts) {
      if (part.kind == Part::Kind::Reduce)
        team_.insert(device_order(target_, device_id(part.device)));
    }
    std::optional<DeviceId> before;  // the device of the part before
    for (size_t p = 0; p < program_.parts.size(); ++p) {
      const Part& part = program_.parts[p];
      const auto stream = streams_.find(static_cast<int32_t>(p));
      const DeviceId device = device_id(stream != streams_.end() ? stream->second : part.device);
      const bool network = part.kind == Part::Kind::Network;
      if (part.kind == Part::Kind::Reduce) {
        add_sum(part, at(device));
        continue;
      }
      const bool together = before && in_team(*before) && in_team(device);
      const bool changes = before && *before != device && !network && !together;
      const bool from_gpu = before && before->gpu() >= 0;
      if (!network) go_to(device);
      if (changes && (from_gpu || device.gpu() >= 0)) {
        hand_over(device.is_cpu() ? *before : device);
      } else if (network && from_gpu) {
        hand_over(*before);
      }
      before = device;
      if (network) {
        add_network(part);
        continue;
      }
      if (together && part.kind == Part::Kind::Peer) add_peer_copies(part, at(device));
      if (stream != streams_.end()) {
        add_streamed(part, at(device));
      } else if (part.kind == Part::Kind::Cpu) {
        DeviceTime& cpu = at(device);
        const double busy = cpu.seconds;
        for_steps(part, [&](const Step& s, int32_t i) { add_step(s, i, cpu); });
        const double seconds = cpu.seconds - busy, saved = beside(part, seconds);
        time_.beside_seconds += saved;
        hosts_[host_].busy_seconds -= saved;
        now_ += seconds - saved;
      } else if (part.kind == Part::Kind::Gpu) {
        add_gpu(part, at(device));
      }
      if (part.kind == Part::Kind::Peer || stream != streams_.end()) queued_ = beside_ = 0;
    }
    finish();
    return std::move(time_);
  }

 private:
  using Streams = std::map<int32_t, std::string>;  // by part, their GPU

  // A part on another device than the one before it waits for it.
  void hand_over(const DeviceId& gpu) {
    const double seconds = at(gpu).rates.hand_over;
    ++time_.hand_overs;
    time_.hand_over_seconds += seconds;
    hosts_[host_].busy_seconds += seconds;
    now_ += seconds;
    arriving_ = seconds;
  }

  bool in_team(const DeviceId& device) const {
    return team_.contains(device_order(target_, device));
  }

  // A GPU waits for the others of its team, and reads what they have.
  void add_sum(const Part& part, DeviceTime& device) const {
    for_steps(part, [&](const Step& step, int32_t) {
      const program::Value& value = program_.values[static_cast<size_t>(step.outputs[0].value)];
      const double rows = value.rows == RowKind::Token ? static_cast<double>(tokens_) : 1;
      const double others = static_cast<double>(step.inputs.size()) - 1;
      const double bytes = rows * static_cast<double>(row_bytes(value));
      device.seconds += tokens_ <= kMostSkinnyTokens ? small_sum(device.rates, bytes, others)
                                                     : large_sum(device.rates, bytes, others);
    });
  }

  // What one GPU of a team gives another.
  void add_peer_copies(const Part& part, DeviceTime& device) const {
    for_steps(part, [&](const Step& step, int32_t) {
      const program::Value& value = program_.values[static_cast<size_t>(step.outputs[0].value)];
      const double rows = value.rows == RowKind::Token ? static_cast<double>(tokens_) : 1;
      const double bytes = rows * static_cast<double>(row_bytes(value));
      device.seconds += kPeerCopySeconds + over(bytes, device.rates.between);
    });
  }

  // The values of a boundary are one message. It leaves when the sender comes to it, as soon as
  // both ends are done with those before it, and the receiver waits for it.
  void add_network(const Part& part) {
    const HostLink link = link_between(target_, device_id(part.from), device_id(part.device));
    double bytes = 0;
    for_steps(part, [&](const Step& step, int32_t index) {
      const program::Value& value = program_.values[static_cast<size_t>(step.inputs[0].value)];
      const int64_t rows = value.rows == RowKind::Token ? tokens_ : 1;
      bytes += static_cast<double>(rows * row_bytes(value)) * program_.steps[index].use;
    });
    go_to(device_id(part.from));
    Host& from = hosts_[host_];
    const double seconds = link.seconds(static_cast<uint64_t>(bytes));
    const double sending = seconds - link.latency_seconds, leaves = now_;
    go_to(device_id(part.device));
    Host& to = hosts_[host_];
    const double begins = std::max({leaves, from.sends_until, to.receives_until});
    from.sends_until = to.receives_until = begins + sending;
    from.send_seconds += sending;
    to.receive_seconds += sending;
    now_ = std::max(now_, begins + seconds);
    ++time_.messages;
    time_.network_bytes += static_cast<uint64_t>(bytes);
    time_.network_seconds += seconds;
    time_.network_assumed = time_.network_assumed || link.assumed;
    queued_ = beside_ = 0;
  }

  // What follows is done by the host of this device, from where it was.
  void go_to(const DeviceId& device) {
    hosts_[host_].now = now_;
    host_ = host_number(target_, device);
    now_ = hosts_[host_].now;
  }

  template <class F>
  void for_steps(const Part& part, const F& f) const {
    for (int32_t i = part.first_step; i < part.first_step + part.step_count; ++i) {
      f(program_.steps[i], i);
    }
  }

  DeviceTime& at(const DeviceId& device) {
    auto [found, added] = devices_.try_emplace(device_order(target_, device));
    if (added) {
      found->second.device = to_string(device);
      found->second.rates = rates_of(target_, device);
    }
    return found->second;
  }

  Work work_of(const Step& step, int32_t index, double expert_share) const {
    Work work;
    const bool output = !step.outputs.empty() && step.outputs[0].value != program::kAbsent &&
                        program_.values[step.outputs[0].value].rows == RowKind::Output;
    const double rows = output ? 1 : static_cast<double>(tokens_);
    if (const auto* a = std::get_if<AttentionAttrs>(&step.attrs)) {
      double seen = static_cast<double>(before_) + rows / 2;
      if (a->window > 0) seen = std::min(seen, static_cast<double>(a->window));
      if (step.op == StepOp::SparseAttention) {
        seen = std::min(seen,
                        static_cast<double>(row_elements(program_.values[step.inputs[1].value])));
      }
      work.operations =
          2.0 * a->heads * (a->key_dim + a->value_dim) * rows * seen / kAttentionShare;
    }
    const double all = static_cast<double>(before_) + rows / 2;
    if (const auto* a = std::get_if<BlockAttentionAttrs>(&step.attrs)) {
      const auto chosen = static_cast<double>(row_elements(program_.values[step.inputs[1].value]));
      const double seen = std::min(all, chosen / a->kv_heads * a->block);
      work.operations =
          2.0 * a->heads * (a->key_dim + a->value_dim) * rows * seen / kAttentionShare;
    }
    if (const auto* a = std::get_if<CompressedAttentionAttrs>(&step.attrs)) {
      double entries = all / a->every;
      if (step.inputs.size() > 1 && step.inputs[1].value != program::kAbsent) {
        const auto chosen =
            static_cast<double>(row_elements(program_.values[step.inputs[1].value]));
        entries = std::min(entries, chosen);
      }
      const double seen = entries + std::min(all, static_cast<double>(a->window));
      work.operations = 4.0 * a->heads * a->dim * rows * seen / kAttentionShare;
    }
    if (const auto* a = std::get_if<ChoosePositionsAttrs>(&step.attrs)) {
      work.operations = 2.0 * a->heads * a->key_dim * rows * all / a->every / kAttentionShare;
    }
    if (const auto* a = std::get_if<ChooseBlocksAttrs>(&step.attrs)) {
      work.operations = 2.0 * a->heads * a->key_dim * rows * all / kAttentionShare;
    }
    const size_t products = product_weights(step.op);
    for (size_t i = 0; i < std::min(products, step.weights.size()); ++i) {
      const program::Blob* const w = program_.weight(step, i);
      if (w == nullptr) continue;
      const auto matrix = matrix_bytes(w->layout, w->dtype, w->rows, w->cols);
      double matrices = static_cast<double>(w->matrices), each = rows;
      if (const auto* e = std::get_if<ExpertsAttrs>(&step.attrs)) {
        const double pairs = e->top_k * program_.steps[index].use;  // of a token
        matrices *= 1 - std::pow(1 - std::min(pairs / std::max(e->experts, 1), 1.0), rows);
        each = rows * pairs / expert_share;
      }
      const double weights = static_cast<double>(w->rows) * static_cast<double>(w->cols);
      work.bytes += static_cast<double>(matrix.value_or(0)) * matrices;
      work.operations += 2 * weights * each;
    }
    return work;
  }

  void add_step(const Step& step, int32_t index, DeviceTime& device) const {
    const bool cpu = target::is_cpu(device.device);
    const Work work = work_of(step, index, cpu ? kCpuExpertShare : kGpuExpertShare);
    device.read_bytes += static_cast<uint64_t>(work.bytes);
    device.seconds += std::max(over(work.bytes, device.rates.read),
                               over(work.operations, device.rates.arithmetic));
  }

  // Steps whose own launches a GPU runs: those of groups without a kernel for these tokens.
  void find_alone() {
    for (const program::Launch& launch : program_.launches) {
      if (!launch.op || tokens_ < launch.least_tokens || tokens_ > launch.most_tokens) continue;
      const auto& device = program_.steps[launch.steps[0]].device;
      const target::GpuTarget* const gpu = gpu_of(target_, device_id(device));
      if (gpu == nullptr) continue;
      const int sm = target::generation(*gpu);
      if (sm < launch.least_sm || sm > launch.most_sm) continue;
      for (int32_t i : launch.steps) fused_.insert(i);
      fused_.erase(launch.steps.back());  // which stands for the group
      // Experts: their choice and gate and up are one kernel, down and the sum another.
      if (info(*launch.op).launches > 1) fused_.erase(launch.steps.front());
    }
  }

  // How much of a part of the CPU runs beside a GPU. One that waits for the latest values of a GPU
  // has what is queued behind them beside it, another one (deferred experts) also what makes them
  // and their way.
  double beside(const Part& part, double seconds) {
    const auto last = static_cast<size_t>(part.first_step + part.step_count - 1);
    const bool waits = waits_.run[last] == waits_.before[last];
    queued_ = waits ? 0 : queued_ + arriving_;
    arriving_ = 0;
    double left = seconds;
    for (double* work : {&queued_, &beside_}) {
      const double both = std::min(*work, left);
      *work -= both;
      left -= both;
    }
    if (waits) beside_ = 0;
    return seconds - left;
  }

  // A part without values for the CPU, or behind them, is computed beside the CPU's part that
  // follows.
  // Seconds of a kernel beside its weights.
  double launch_of(const DeviceTime& device) const {
    if (tokens_ == 1) return device.rates.launch;
    return device.rates.launch * (tokens_ <= kMostSkinnyTokens ? kFewTokens : kMoreTokens);
  }

  void add_gpu(const Part& part, DeviceTime& device) {
    bool hands_over = false;
    const double before = device.seconds;
    const int64_t launches_before = device.launches;
    for_steps(part, [&](const Step& step, int32_t i) {
      add_step(step, i, device);
      hands_over |= step.op == StepOp::Transfer && target::is_cpu(step.device);
      if (!fused_.contains(i) && step.op != StepOp::Transfer) ++device.launches;
    });
    const auto launches = static_cast<double>(device.launches - launches_before);
    const double seconds = device.seconds - before + launches * launch_of(device);
    if (hands_over) queued_ += beside_ + seconds;
    beside_ = hands_over ? 0 : seconds;
    now_ += seconds;
  }

  // Pieces of weights on their way to a GPU, in the order of their use (stream_memory.h). There are
  // two slots: a copy begins behind the one before it, and when the piece before that is tiles.
  class Copies {
   public:
    // When a piece of `bytes` is there, at this rate.
    double arrival(double bytes, double rate) {
      end_ = std::max(end_, taken_[0]) + over(bytes, rate);
      return end_;
    }
    void take(double at) {
      taken_[0] = taken_[1];
      taken_[1] = at;
    }

   private:
    double end_ = 0;
    double taken_[2] = {0, 0};  // of the last two pieces
  };

  double panel_bytes(const Step& step, size_t weight) const {
    const program::Blob* const w = program_.weight(step, weight);
    if (w == nullptr) return 0;
    return static_cast<double>(matrix_bytes(w->layout, w->dtype, w->rows, w->cols).value_or(0)) *
           static_cast<double>(w->matrices);
  }

  // The share of the experts of a streamed part that comes to the GPU.
  double share_of_gpu(const Part& part) const {
    for (int32_t i = part.first_step; i < part.first_step + part.step_count; ++i) {
      const auto* experts = std::get_if<ExpertsAttrs>(&program_.steps[i].attrs);
      if (experts == nullptr || experts->experts <= 0) continue;
      const int32_t here = program::experts_of_gpu(experts->experts, tokens_, joint_);
      return static_cast<double>(here) / experts->experts;
    }
    return 1;
  }

  // The CPU computes the others meanwhile.
  double rest_seconds(const Part& part, double share) {
    const DeviceRates& cpu = at(device_id(part.device)).rates;
    double seconds = 0;
    for_steps(part, [&](const Step& step, int32_t index) {
      const Work work = work_of(step, index, kCpuExpertShare);
      seconds +=
          (1 - share) * std::max(over(work.bytes, cpu.read), over(work.operations, cpu.arithmetic));
    });
    return seconds;
  }

  void add_streamed(const Part& part, DeviceTime& device) {
    const double begin = now_;
    const double share = share_of_gpu(part), rest = share < 1 ? rest_seconds(part, share) : 0;
    Copies& copies = copies_[device.device];
    const auto fetch = [&](double bytes) {
      now_ = std::max(now_, copies.arrival(bytes, device.rates.pcie));
      now_ += over(2 * bytes, device.rates.read) + launch_of(device);  // panels become tiles
      copies.take(now_);
      device.copied_bytes += static_cast<uint64_t>(bytes);
    };
    double layer = 0;
    for_steps(part, [&](const Step& step, int32_t) {
      for (size_t i = 0; i < std::min(product_weights(step.op), step.weights.size()); ++i) {
        layer += share * panel_bytes(step, i);
      }
    });
    // Deferred experts find the tiles of their layer there.
    const std::string& module = program_.steps[part.first_step].module;
    if (slots_ == plan::StreamSlots::Layer && module != layer_there_) fetch(layer);
    layer_there_ = module;
    for_steps(part, [&](const Step& step, int32_t index) {
      const size_t products = std::min(product_weights(step.op), step.weights.size());
      for (size_t i = 0; i < products && slots_ != plan::StreamSlots::Layer; ++i) {
        const int pieces = slots_ == plan::StreamSlots::Matrix ? 1 : plan::kStreamParts;
        for (int piece = 0; piece < pieces; ++piece) {
          fetch(share * panel_bytes(step, i) / pieces);
        }
      }
      const Work work = work_of(step, index, kGpuExpertShare);
      now_ += share * std::max(over(work.bytes, device.rates.read),
                               over(work.operations, device.rates.arithmetic));
    });
    now_ = std::max(now_, begin + rest);
    device.seconds += now_ - begin;
  }

  void finish() {
    time_.known = true;
    for (auto& [order, device] : devices_) {
      device.seconds += static_cast<double>(device.launches) * launch_of(device);
      const bool idle = device.read_bytes == 0 && device.copied_bytes == 0 && device.seconds == 0;
      if (idle && device.launches == 0) continue;
      if (device.read_bytes > 0 && device.rates.read <= 0) time_.known = false;
      if (device.copied_bytes > 0 && device.rates.pcie <= 0) time_.known = false;
      time_.seconds += device.seconds;
      time_.devices.push_back(device);
    }
    finish_team();
    time_.seconds += time_.hand_over_seconds + time_.network_seconds - time_.beside_seconds;
    finish_hosts();
    time_.known = time_.known && time_.seconds > 0;
  }

  // GPUs that compute layers together: the slowest is what counts.
  void finish_team() {
    double all = 0, most = 0;
    for (const auto& [order, device] : devices_) {
      if (!team_.contains(order)) continue;
      all += device.seconds;
      most = std::max(most, device.seconds);
    }
    time_.beside_seconds += all - most;
  }

  // Hosts that compute beside each other: the pass ends when the last one does. Several passes in
  // flight are bounded by the host, or the end of a wire, that has most to do in each.
  void finish_hosts() {
    if (time_.messages == 0) return;
    hosts_[host_].now = now_;
    for (const DeviceTime& device : time_.devices) {
      hosts_[host_number(target_, device_id(device.device))].busy_seconds += device.seconds;
    }
    double end = 0;
    for (const auto& [number, host] : hosts_) {
      end = std::max(end, host.now);
      time_.busiest_seconds = std::max(
          {time_.busiest_seconds, host.busy_seconds, host.send_seconds, host.receive_seconds});
    }
    const double saved = time_.seconds - end;
    if (saved < 1e-9) return;  // they take turns
    time_.beside_seconds += saved;
    time_.seconds = end;
  }

  static double over(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

  const target::Target& target_;
  const int64_t tokens_, before_;
  const plan::StreamSlots slots_;
  const int64_t joint_;
  const program::Program& program_;
  const program::CpuWaits waits_;
  Streams streams_;
  std::set<int32_t> fused_;  // steps that another step's launch stands for
  std::map<std::pair<size_t, int>, DeviceTime> devices_;  // by device_order()
  std::set<std::pair<size_t, int>> team_;                 // GPUs that compute layers together
  std::map<std::string, Copies> copies_;                  // by GPU
  std::string layer_there_;                               // the module whose tiles a GPU has
  double now_ = 0;  // of the host at hand, since the begin of the pass
  // The others are where they were; the ends of the wire are busy that long, and that much in all.
  struct Host {
    double now = 0, sends_until = 0, receives_until = 0;
    double send_seconds = 0, receive_seconds = 0;
    double busy_seconds = 0;  // of its devices, less what they do beside each other
  };
  std::map<size_t, Host> hosts_;
  size_t host_ = 0;  // the one at hand
  // Seconds of a GPU's parts since the CPU last waited: those up to the latest values for the CPU,
  // and those queued behind them.
  double queued_ = 0, beside_ = 0;
  double arriving_ = 0;  // of the last hand-over
  ForwardTime time_;
};

}  // namespace

DeviceRates rates_of(const target::Target& target, const DeviceId& device) {
  if (device.gpu() < 0) return cpu_rates(cpu_of(target, device));
  const target::GpuTarget* const gpu = gpu_of(target, device);
  return gpu != nullptr ? gpu_rates(*gpu) : DeviceRates();
}

ForwardTime predict_forward(const program::Program& program, const target::Target& target,
                            const ForwardShape& shape) {
  return Predictor(program, target, shape).run();
}

}  // namespace ktx::passes
