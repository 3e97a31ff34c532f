#include "tools/ktx-run/image_files.h"

#include <utility>

namespace ktx::tools {

Result<std::shared_ptr<images::DecoderProcess>> start_decoder() {
  return std::shared_ptr<images::DecoderProcess>(
      KTX_TRY(images::DecoderProcess::start({"/proc/self/exe", images::kDecoderCommand})));
}

Result<std::unique_ptr<vision::Viewer>> open_viewer(const LoadedModel& model,
                                                    const std::string& plan,
                                                    const EngineFlags& flags) {
  runtime::EngineOptions options = engine_options(flags);
  options.pool = model.engine->pool();
  return vision::Viewer::open(plan, std::move(options), *model.engine, KTX_TRY(start_decoder()));
}

}  // namespace ktx::tools
