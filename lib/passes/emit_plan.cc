// Turns the program into the records of a plan and streams the weights in.
//
// Blobs go into one segment per device, in order of first use; tensors that no
// step reads (heads for speculation, rotary factors) go into a carried segment,
// so that the GGUF can be rebuilt bit for bit.
#include "lib/passes/emit_plan.h"
#include "lib/arch/build_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <ranges>
#include <set>
#include <unordered_map>
#include <utility>

#include "kernels/matmul/marlin_blob.h"
#include "kernels/matmul/marlin_layout.h"
#include "kernels/matmul/panel16.h"
#include "lib/formats/layout.h"
#include "lib/input/general_texts.h"
#include "lib/ir/module_graph.h"
#include "lib/passes/cost/target_devices.h"
#include "lib/passes/pack_requantized.h"
#include "lib/passes/placement.h"
#include "lib/passes/placement/chunk_tokens.h"
#include "lib/plan/move_blobs.h"
#include "lib/plan/pack_blobs.h"
#include "lib/plan/plan_program.h"
#include "lib/plan/plan_writer.h"
#include "lib/plan/tensor_parts.h"
#include "lib/rules/device_name.h"
#include "lib/support/output_place.h"
#include "lib/support/strings.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

class ContentsBuilder {
 public:
  ContentsBuilder(const CompileState& state, const input::ModelSource& source,
                  const EmitOptions& options)
      : state_(state), program_(state.program), source_(source), options_(options) {}

  Result<plan::PlanContents> run() {
    add_source();
    KTX_TRY(add_blobs());
    if (options_.carry_unused) KTX_TRY(add_carried());
    plan::add_program(out_, program_, blob_index_);
    add_facts();
    out_.tokenizer = options_.tokenizer;
    out_.chat_template = options_.chat_template;
    out_.module_graph = ir::print(state_.modules);
    out_.drafter = options_.drafter;
    out_.tower = options_.tower;
    return std::move(out_);
  }

 private:
  void add_source() {
    for (int shard = 0; shard < static_cast<int>(source_.gguf.shards().size()); ++shard) {
      const std::span<const std::byte> header = source_.gguf.header(shard);
      const input::GgufShard& info = source_.gguf.shards()[shard];
      uint64_t end = info.data_offset;
      for (const input::GgufTensor& tensor : source_.gguf.tensors()) {
        if (tensor.shard == shard) end = std::max(end, tensor.offset_in_file + tensor.size_bytes);
      }
      const uint64_t padded = (end + info.alignment - 1) / info.alignment * info.alignment;
      out_.gguf.shards.push_back(
          {std::string(reinterpret_cast<const char*>(header.data()), header.size()),
           std::min<uint64_t>(padded, info.file.bytes().size()), info.alignment});
    }
    for (const input::GgufTensor& tensor : source_.gguf.tensors()) {
      tensor_index_[tensor.name] = static_cast<uint32_t>(out_.gguf.tensors.size());
      out_.gguf.tensors.push_back({.name = out_.strings.intern(tensor.name),
                                   .dtype = static_cast<uint16_t>(tensor.dtype),
                                   .reserved = 0,
                                   .shard = static_cast<uint32_t>(tensor.shard),
                                   .reserved2 = 0,
                                   .row_elems = tensor.shape[0] * (tensor.i64 ? 2 : 1),
                                   .rows = tensor.elems / std::max<int64_t>(tensor.shape[0], 1),
                                   .offset = tensor.offset_in_file,
                                   .size = tensor.size_bytes});
    }
    used_.resize(out_.gguf.tensors.size());
  }

  // Devices in order of their first blob.
  std::vector<std::string> devices() const {
    std::vector<std::string> names;
    for (const program::Blob& blob : program_.blobs) {
      if (std::find(names.begin(), names.end(), blob.device) == names.end()) {
        names.push_back(blob.device);
      }
    }
    return names;
  }

  // What rules have tensors rounded to.
  void find_forms() {
    for (const ir::Module& module : state_.modules.modules) {
      if (!module.decision.lossy_allowed) continue;
      for (const ir::Param& param : module.params) {
        for (const TensorSlice& slice : param.sources) {
          if (find_requantized_form(module.decision.layout)) {
            forms_[slice.tensor] = module.decision.layout;
          }
        }
      }
    }
  }

  Status add_blobs() {
    find_forms();
    blob_index_.assign(program_.blobs.size(), plan::kNone);
    for (const std::string& device : devices()) {
      for (size_t i = 0; i < program_.blobs.size(); ++i) {
        if (program_.blobs[i].device == device) KTX_TRY(add_blob(i));
      }
      out_.close_segment(device, plan::SegmentKind::Weights);
    }
    return {};
  }

  Status add_blob(size_t i) {
    const program::Blob& blob = program_.blobs[i];
    const uint32_t name = out_.strings.intern(blob.name);
    if (!blob.constant.empty()) {
      blob_index_[i] = out_.add_constant(name, blob.constant);
      return {};
    }
    std::vector<plan::SliceRecord> slices;
    for (const TensorSlice& slice : blob.sources) {
      const auto tensor = tensor_index_.find(slice.tensor);
      if (tensor == tensor_index_.end()) {
        return Error{fmt::format("blob '{}' needs tensor '{}', which the model lacks", blob.name,
                                 slice.tensor)};
      }
      // A vector may stand upright in its file.
      const plan::GgufTensorRecord& record = out_.gguf.tensors[tensor->second];
      const int64_t rows = record.rows * record.row_elems / blob.cols;
      slices.push_back({.tensor = tensor->second,
                        .blob = 0,
                        .first_row = slice.first_row,
                        .row_count = slice.row_count < 0 ? rows : slice.row_count,
                        .blob_row = 0});
      // Parts of rows are read by all of a team.
      const bool whole_rows = blob.cols == record.row_elems;
      used_[tensor->second].push_back(
          whole_rows ? std::pair{slices.back().first_row, slices.back().row_count}
                     : std::pair{int64_t{0}, record.rows});
    }
    const bool rounded = std::any_of(slices.begin(), slices.end(), [&](const auto& slice) {
      return out_.gguf.tensors[slice.tensor].dtype != static_cast<uint16_t>(blob.dtype);
    });
    if (rounded) {
      const std::string& form = forms_.at(blob.sources[0].tensor);
      out_.requantized[static_cast<uint32_t>(out_.blobs.size())] = form;
      out_.facts.lossy = true;
    }
    const bool merges = options_.merge != nullptr &&
                        std::ranges::any_of(blob.sources, [&](const TensorSlice& slice) {
                          return options_.merge->find(slice.tensor) != nullptr;
                        });
    if (merges) out_.merged.insert(static_cast<uint32_t>(out_.blobs.size()));
    blob_index_[i] = out_.add_blob({.name = name,
                                    .dtype = static_cast<uint16_t>(blob.dtype),
                                    .layout = static_cast<uint16_t>(blob.layout),
                                    .offset = 0,
                                    .size = 0,
                                    .rows = blob.rows,
                                    .cols = blob.cols,
                                    .matrices = blob.matrices,
                                    .first_slice = 0,
                                    .slice_count = 0,
                                    .hash = {}},
                                   slices);
    return {};
  }

  // Tensors, and rows between those that steps read (of a fused q, k and v, where a layer has other
  // keys).
  Status add_carried() {
    for (uint32_t i = 0; i < used_.size(); ++i) {
      std::ranges::sort(used_[i]);
      used_[i].emplace_back(out_.gguf.tensors[i].rows, 0);
      int64_t next = 0;
      for (const auto& [first, count] : used_[i]) {
        if (first > next) carry(i, next, first - next);
        next = std::max(next, first + count);
      }
    }
    out_.close_segment(program::kNoDevice, plan::SegmentKind::Carried);
    return {};
  }

  void carry(uint32_t index, int64_t first_row, int64_t rows) {
    const plan::GgufTensorRecord& tensor = out_.gguf.tensors[index];
    const plan::SliceRecord slice = {
        .tensor = index, .blob = 0, .first_row = first_row, .row_count = rows, .blob_row = 0};
    out_.add_blob({.name = tensor.name,
                   .dtype = tensor.dtype,
                   .layout = static_cast<uint16_t>(Layout::Rows),
                   .offset = 0,
                   .size = 0,
                   .rows = rows,
                   .cols = tensor.row_elems,
                   .matrices = 1,
                   .first_slice = 0,
                   .slice_count = 0,
                   .hash = {}},
                  {&slice, 1});
  }

  void add_facts() {
    const ir::ModelFacts& model = state_.modules.facts;
    plan::PlanFacts& facts = out_.facts;
    facts.architecture = model.architecture;
    facts.family = model.family;
    facts.name = model.name;
    facts.vocab_size = model.vocab;
    facts.hidden_size = model.hidden;
    facts.layers = model.layers;
    facts.context_length = model.context_length;
    for (const ir::Module& module : state_.modules.modules) {
      const auto* rotary = std::get_if<ir::RotaryInfo>(&module.info);
      if (rotary && rotary->context > 0) facts.rotary_ctx = rotary->context;
    }
    for (const input::GgufTensor& tensor : source_.gguf.tensors()) facts.parameters += tensor.elems;
    facts.pooling = model.pooling;
    facts.scores = model.scores;
    facts.encoder = model.encoder;
    // The last step writes the logits: the head, a scale or softcap of them, or their transfer.
    facts.logits_value = static_cast<uint32_t>(program_.steps.back().outputs[0].value);
    for (size_t tap = 0; tap < state_.taps.size(); ++tap) {
      for (size_t i = 0; i < program_.values.size(); ++i) {
        if (program_.values[i].name != tap_value(tap)) continue;
        facts.hidden_values.push_back(static_cast<uint32_t>(i));
      }
    }
    for (const program::Step& step : program_.steps) {
      if (step.op == StepOp::GivenHidden) facts.given_width = step.outputs[0].width;
    }
    facts.given_taps = options_.given_taps;
    facts.takes_images = state_.image_parts > 0;
    facts.image = options_.image;
    facts.merged = options_.merged;
    if (options_.merge != nullptr) {
      facts.merged.insert(facts.merged.end(), options_.merge->texts().begin(),
                          options_.merge->texts().end());
    }
    facts.draft_vocab = std::ssize(options_.draft_tokens);
    out_.draft_tokens = options_.draft_tokens;
    const double use = gpu_expert_use(placement_of(state_));
    if (use > 0 && use < 1) facts.gpu_expert_ppm = std::llround(use * 1e6);
    facts.bos_id = options_.bos_id;
    facts.eos_id = options_.eos_id;
    facts.default_ctx = options_.default_ctx > 0
                            ? options_.default_ctx
                            : std::min(arch::kDefaultCtx, model.context_length);
    facts.max_batch = options_.max_batch;
    facts.chunk_tokens = state_.prefer.stream_tokens > 0 ? state_.check.shape.step_tokens
                                                         : chunk_tokens(state_.modules, 0);
    if (state_.stream_slots) facts.stream_slots = word(*state_.stream_slots);
    if (state_.prefer.stream_tokens > 0) facts.joint_tokens = state_.prefer.joint_tokens;
    facts.kv_budget_bytes = options_.kv_budget_bytes;

    // Facts of a described machine; none of this machine, so that plans are alike.
    const target::Target& target = state_.target;
    out_.target.name = target.name.empty() ? "host" : target.name;
    out_.target.isa = options_.isa;
    for (const std::string& device : devices()) {
      const DeviceId id = target::device_id(device);
      const target::GpuTarget* const gpu = target.name.empty() ? nullptr : gpu_of(target, id);
      const bool of_host = has_hosts(target) && target::is_cpu(device);
      const uint64_t memory = of_host          ? cpu_of(target, id).memory_bytes
                              : gpu != nullptr ? gpu->memory_bytes
                                               : 0;
      out_.target.devices.push_back({device, static_cast<int64_t>(memory)});
    }
    if (has_hosts(target)) add_hosts();
    out_.provenance.ktx_version = KTX_VERSION;
    out_.provenance.inputs = options_.inputs;
    out_.provenance.options = options_.options;
    out_.provenance.general =
        input::general_texts(source_.gguf, plan::kMaxGeneral, plan::kMaxGeneralBytes);
  }

  // With the names that devices have on each host (lib/plan/plan_hosts.h).
  void add_hosts() {
    const std::vector<target::HostTarget>& hosts = state_.target.hosts;
    std::set<std::string> names{"cpu"};
    for (const program::Step& step : program_.steps)
      names.emplace(target::name_on_host(step.device));
    for (const target::HostTarget& host : hosts) {
      out_.target.hosts.push_back({host.name, static_cast<int64_t>(host.cpu.memory_bytes)});
      const bool first = out_.target.hosts.size() == 1;
      for (const std::string& name : names) {
        out_.strings.intern(target::device_on(first ? "" : host.name, name));
      }
    }
  }

  const CompileState& state_;
  const program::Program& program_;
  const input::ModelSource& source_;
  const EmitOptions& options_;
  plan::PlanContents out_;
  std::unordered_map<std::string_view, uint32_t> tensor_index_;
  std::unordered_map<std::string, std::string> forms_;  // by tensor
  // By tensor: the rows that steps read, (first, count).
  std::vector<std::vector<std::pair<int64_t, int64_t>>> used_;
  std::vector<uint32_t> blob_index_;  // of the step program's blobs, in the plan
};

void pack_as_panels(const plan::BlobRecord& blob, plan::BlobSource& source) {
  const kernels::Panel16Blob panels{static_cast<DType>(blob.dtype), blob.rows, blob.cols,
                                    blob.matrices, static_cast<Layout>(blob.layout)};
  source.granule_bytes =
      static_cast<uint64_t>(*matrix_bytes(panels.layout, panels.dtype, kPanelRows, panels.cols));
  source.pack = [panels](std::span<const std::span<const std::byte>> slices, uint64_t offset,
                         std::span<std::byte> out) {
    kernels::pack_panel16_range(panels, slices, offset, out);
  };
}

void pack_as_marlin(const plan::BlobRecord& blob, plan::BlobSource& source) {
  const kernels::MarlinBlob marlin{static_cast<DType>(blob.dtype), blob.rows, blob.cols,
                                   blob.matrices};
  source.granule_bytes =
      static_cast<uint64_t>(kernels::marlin_strip_bytes(marlin.dtype, marlin.cols));
  source.pack = [marlin](std::span<const std::span<const std::byte>> slices, uint64_t offset,
                         std::span<std::byte> out) {
    kernels::pack_marlin_range(marlin, slices, offset, out);
  };
}

// What becomes free on the disk of the plan when the files are moved into it.
uint64_t bytes_given_back(const std::string& path, std::span<const MovedFile> files) {
  const Result<OutputPlace> place = find_output(path);
  struct stat info = {};
  const auto folder = place ? std::filesystem::path(place->path).parent_path() : "";
  if (stat(folder.c_str(), &info) != 0) return 0;
  uint64_t bytes = 0;
  for (const MovedFile& file : files) bytes += file.device() == info.st_dev ? file.disk_bytes() : 0;
  return bytes;
}

// Its progress is half that of the move and half that of the hashes.
Status move_and_hash(plan::PlanWriter& writer, std::span<const plan::BlobSource> sources,
                     std::span<MovedFile> files, plan::PackOptions pack) {
  const auto progress = pack.progress;
  const auto half = [&](uint64_t before) {
    return [progress, before](uint64_t done, uint64_t total) {
      if (progress) progress(before * total + done, 2 * total);
    };
  };
  pack.progress = half(0);
  KTX_TRY(plan::move_blobs(writer, sources, files, pack));
  const MappedFile moved = KTX_TRY(writer.map());
  pack.moved = &moved;
  pack.progress = half(1);
  return plan::pack_blobs(writer, sources, pack);
}

std::string merged_to_no_number(const std::string& name, const lora::Merge& merge) {
  return fmt::format(
      "tensor '{}': with the adapter ({}) some of its weights are NaN or infinite; the adapter or "
      "the model is damaged, or the scale is too large",
      printable(name), fmt::join(merge.texts(), ", "));
}

}  // namespace

Result<plan::PlanContents> make_contents(const CompileState& state,
                                         const input::ModelSource& source,
                                         const EmitOptions& options) {
  return ContentsBuilder(state, source, options).run();
}

Result<PackedWeights> emit_plan(const std::string& path, plan::PlanContents contents,
                                const input::ModelSource& source, const PackWeights& how) {
  PackedWeights packed_weights;
  std::vector<RoundedWeights>& rounded = packed_weights.rounded;
  std::vector<plan::BlobSource> sources;
  std::vector<std::shared_ptr<RequantizeError>> errors;
  for (const plan::BlobRecord& blob : contents.blobs) {
    plan::BlobSource& packed = sources.emplace_back();
    std::vector<RowsOfTensor> rows;
    if (in_panels(static_cast<Layout>(blob.layout))) pack_as_panels(blob, packed);
    if (blob.layout == static_cast<uint16_t>(Layout::Marlin)) pack_as_marlin(blob, packed);
    for (uint32_t i = 0; i < blob.slice_count; ++i) {
      const plan::SliceRecord& slice = contents.slices[blob.first_slice + i];
      const input::GgufTensor& tensor = source.gguf.tensors()[slice.tensor];
      const int64_t row = row_bytes(tensor.dtype, blob.cols).value_or(0);
      const int64_t step = plan::row_step(contents.gguf.tensors[slice.tensor], blob.cols);
      const int64_t runs = step == 1 ? 1 : slice.row_count;
      for (int64_t run = 0; run < runs; ++run) {
        packed.slices.push_back(
            tensor.bytes.subspan(static_cast<size_t>((slice.first_row + run * step) * row),
                                 static_cast<size_t>(slice.row_count / runs * row)));
        rows.push_back({tensor.dtype, how.merge ? how.merge->find(tensor.name) : nullptr,
                        slice.first_row + run * step, tensor.shape[0]});
      }
    }
    const auto number = static_cast<uint32_t>(sources.size() - 1);
    const auto to = contents.requantized.find(number);
    const bool requantized = to != contents.requantized.end();
    const bool merged = contents.merged.contains(number);
    if (!requantized && !merged) continue;
    const RequantizedForm* const form = requantized ? find_requantized_form(to->second) : nullptr;
    errors.push_back(std::make_shared<RequantizeError>());
    pack_requantized(blob, form, std::move(rows), errors.back(), packed);
    rounded.push_back({std::string(contents.strings[blob.name]),
                       std::string(form ? form->name : name(static_cast<DType>(blob.dtype))),
                       merged, !requantized});
  }
  std::vector<plan::SourceFile> files;
  plan::PackOptions pack;
  pack.threads = how.threads;
  pack.progress = how.progress;
  for (const input::GgufShard& shard : source.gguf.shards()) {
    files.push_back({shard.stamp, shard.file.bytes()});
    pack.files.push_back(&shard.file);
  }
  if (how.reuse != nullptr) {
    packed_weights.reused = KTX_TRY(plan::reuse_blobs(*how.reuse, contents, sources, how.threads));
    pack.files.push_back(&how.reuse->mapping());
  }
  plan::WriterOptions options;
  options.moves = !how.move.empty();
  if (options.moves) {
    const Status movable = plan::check_movable(contents, pack.files);
    if (!movable && !how.move_if_possible) return movable.error();
    options.moves = movable.ok();
  }
  packed_weights.moved = options.moves;
  if (options.moves) {
    options.given_back = bytes_given_back(path, how.move);
  } else {
    options.source_key = plan::source_key(files);
  }
  plan::PlanWriter writer = KTX_TRY(plan::PlanWriter::create(path, std::move(contents), options));
  if (options.moves) {
    KTX_TRY(move_and_hash(writer, sources, how.move, pack));
  } else {
    KTX_TRY(plan::pack_blobs(writer, sources, pack));
    KTX_TRY(source.gguf.check_unchanged());
  }
  for (size_t i = 0; i < errors.size(); ++i) {
    if (how.merge != nullptr && rounded[i].merged && !errors[i]->is_finite()) {
      return Error{merged_to_no_number(rounded[i].name, *how.merge)};
    }
    rounded[i].relative_rms = errors[i]->relative_rms();
    rounded[i].largest_error = errors[i]->largest_error;
  }
  KTX_TRY(writer.complete());
  // The last one first: that of a model's name has what a next run looks for.
  if (options.moves) {
    for (MovedFile& file : std::views::reverse(how.move)) KTX_TRY(file.remove());
  }
  KTX_TRY(writer.put_in_place());
  return packed_weights;
}

}  // namespace ktx::passes
