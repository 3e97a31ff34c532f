#include "lib/program/streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "kernels/matmul/retile.h"
#include "lib/formats/layout.h"
#include "lib/program/find_fused.h"
#include "lib/program/parts.h"
#include "lib/target/host_device.h"

namespace ktx::program {
namespace {

class Finder {
 public:
  explicit Finder(const Program& program)
      : program_(program), uses_(program), devices_(value_devices(program)) {}

  std::optional<Stream> stream(int32_t number) const {
    const Part& part = program_.parts[number];
    if (part.kind != Part::Kind::Cpu) return std::nullopt;
    Stream stream;
    stream.part = number;
    std::set<int32_t> read, written;
    bool has_experts = false;
    for (int32_t i = part.first_step; i < part.first_step + part.step_count; ++i) {
      const Step& step = program_.steps[i];
      if (step.op == StepOp::Quantize) continue;
      const bool experts = step.op == StepOp::ExpertsGateUp || step.op == StepOp::ExpertsDown;
      if (!experts && step.op != StepOp::GroupExperts) return std::nullopt;
      has_experts |= experts;
      stream.steps.push_back(i);
      if (!add_weights(step, stream)) return std::nullopt;
      for (size_t operand = 0; operand < step.inputs.size(); ++operand) {
        // Inputs of products for the CPU alone.
        if (experts && operand == 1) continue;
        const int32_t value = step.inputs[operand].value;
        if (value != kAbsent && !written.contains(value)) read.insert(value);
      }
      for (const View& out : step.outputs) written.insert(out.value);
    }
    if (!has_experts) return std::nullopt;
    for (int32_t value : read) {
      if (!comes_from_gpu(value, part, stream.device)) return std::nullopt;
    }
    for (int32_t value : written) {
      if (!goes_to_gpu(value, part, stream.device)) return std::nullopt;
    }
    if (stream.device.empty()) return std::nullopt;
    read.insert(written.begin(), written.end());
    stream.values.assign(read.begin(), read.end());
    return stream;
  }

 private:
  static bool in(const Part& part, int32_t step) {
    return part.first_step <= step && step < part.first_step + part.step_count;
  }

  bool add_weights(const Step& step, Stream& stream) const {
    for (size_t i = 0; i < step.weights.size(); ++i) {
      const Blob* const w = program_.weight(step, i);
      if (w == nullptr) continue;
      const bool product = i < product_weights(step.op);
      if (product ? !kernels::retile_takes(w->dtype, w->layout) : w->layout != Layout::Rows) {
        return false;
      }
      (product ? stream.products : stream.vectors).push_back(step.weights[i]);
    }
    return true;
  }

  // `device`: of all values so far; empty: none yet.
  static bool is_that(const std::string& found, std::string& device) {
    if (device.empty()) device = found;
    return device == found && !target::is_cpu(found);
  }

  // Written by one transfer of a GPU before the part, and read by steps of the CPU alone.
  bool comes_from_gpu(int32_t value, const Part& part, std::string& device) const {
    if (uses_.writers[value].size() != 1 || value == program_.logits()) return false;
    const int32_t writer = uses_.writers[value][0];
    const Step& step = program_.steps[writer];
    if (step.op != StepOp::Transfer || writer >= part.first_step || step.device != part.device) {
      return false;
    }
    const auto is_transfer = [&](int32_t i) { return program_.steps[i].op == StepOp::Transfer; };
    return std::ranges::none_of(uses_.readers[value], is_transfer) &&
           is_that(devices_[program_.input(writer, 0)], device);
  }

  // Written by one step, and read by the part and by transfers to the GPU behind it.
  bool goes_to_gpu(int32_t value, const Part& part, std::string& device) const {
    if (uses_.writers[value].size() != 1 || value == program_.logits()) return false;
    return std::ranges::all_of(uses_.readers[value], [&](int32_t i) {
      if (in(part, i)) return true;
      return i > part.first_step && program_.steps[i].op == StepOp::Transfer &&
             is_that(program_.steps[i].device, device);
    });
  }

  const Program& program_;
  const Uses uses_;
  const std::vector<std::string> devices_;  // by value
};

// What a streamed part gets from its GPU stays there. So of two parts that read one value (experts
// of a layer of which some are deferred) both are streamed to that GPU or none.
void keep_those_that_go_together(const Program& program, std::vector<Stream>& streams) {
  std::vector<int32_t> stream_of(program.steps.size(), kAbsent);  // by step of their parts
  std::vector<std::vector<int32_t>> users(program.values.size());
  const auto count = static_cast<int32_t>(streams.size());
  for (int32_t s = 0; s < count; ++s) {
    const Part& part = program.parts[static_cast<size_t>(streams[s].part)];
    std::fill_n(stream_of.begin() + part.first_step, part.step_count, s);
    for (int32_t value : streams[s].values) users[value].push_back(s);
  }
  std::vector<bool> alone(streams.size());  // reads what a step that is not streamed reads
  std::vector<std::vector<int32_t>> beside(streams.size());
  std::vector<int32_t> gone;
  const auto leave = [&](int32_t s) {
    if (!alone[s]) gone.push_back(s);
    alone[s] = true;
  };
  const Uses uses(program);
  for (size_t value = 0; value < users.size(); ++value) {
    const std::vector<int32_t>& own = users[value];
    if (own.empty()) continue;
    const auto stays = [&](int32_t reader) {
      if (program.steps[reader].op == StepOp::Transfer) return true;
      const int32_t s = stream_of[reader];
      return s != kAbsent && streams[s].device == streams[own[0]].device;
    };
    if (!std::ranges::all_of(uses.readers[value], stays)) std::ranges::for_each(own, leave);
    for (size_t i = 1; i < own.size(); ++i) {
      beside[own[i]].push_back(own[i - 1]);
      beside[own[i - 1]].push_back(own[i]);
    }
  }
  for (size_t i = 0; i < gone.size(); ++i) std::ranges::for_each(beside[gone[i]], leave);
  std::vector<Stream> kept;
  for (int32_t s = 0; s < count; ++s) {
    if (!alone[s]) kept.push_back(std::move(streams[s]));
  }
  streams = std::move(kept);
}

// Takes any launch, also one whose steps are not checked yet.
bool is_streamed(const Program& program, const Launch& launch) {
  if (launch.op || launch.steps.size() != 1) return false;
  const int32_t step = launch.steps[0];
  return step >= 0 && step < std::ssize(program.steps) &&
         target::is_cpu(program.steps[step].device);
}

}  // namespace

std::vector<Stream> find_streams(const Program& program) {
  const Finder finder(program);
  std::vector<Stream> streams;
  for (size_t p = 0; p < program.parts.size(); ++p) {
    if (auto stream = finder.stream(static_cast<int32_t>(p))) streams.push_back(*stream);
  }
  keep_those_that_go_together(program, streams);
  return streams;
}

Result<int64_t> stream_tokens(const Program& program) {
  std::map<int32_t, int64_t> least;  // by step
  for (const Launch& launch : program.launches) {
    if (!is_streamed(program, launch)) continue;
    const auto [it, added] = least.try_emplace(launch.steps[0], launch.least_tokens);
    it->second = std::min(it->second, launch.least_tokens);
  }
  if (least.empty()) return int64_t{0};
  for (const auto& [step, tokens] : least) {
    if (tokens == least.begin()->second) continue;
    return Error{fmt::format("step {} is streamed from {} tokens on, step {} from {}",
                             least.begin()->first, least.begin()->second, step, tokens)};
  }
  return least.begin()->second;
}

std::vector<Stream> streams_of(const Program& program) {
  std::set<int32_t> steps;
  for (const Launch& launch : program.launches) {
    if (is_streamed(program, launch)) steps.insert(launch.steps[0]);
  }
  if (steps.empty()) return {};
  std::vector<Stream> streams = find_streams(program);
  std::erase_if(streams, [&](const Stream& s) { return !steps.contains(s.steps[0]); });
  keep_those_that_go_together(program, streams);
  return streams;
}

}  // namespace ktx::program
