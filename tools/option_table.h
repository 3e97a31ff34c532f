// A tool's table of options, expanded once: what the parser and help know of each, and its field.
//
//   constexpr OptionRow<Options> kRows[] = {...};  // KTX_OPTION: {info, setter}
//   constexpr OptionTable kOptions(kRows);         // kOptions.infos, kOptions.set[given.option]
#pragma once

#include <cstddef>

#include "tools/option_readers.h"

namespace ktx::tools {

template <class Options>
struct OptionRow {
  OptionInfo info;
  void (*set)(Options&, const Given&, Mistakes&);
};

template <class Options, size_t N>
struct OptionTable {
  OptionInfo infos[N]{};
  void (*set[N])(Options&, const Given&, Mistakes&){};
  constexpr explicit OptionTable(const OptionRow<Options> (&rows)[N]) {
    for (size_t i = 0; i < N; ++i) infos[i] = rows[i].info, set[i] = rows[i].set;
  }
};

// A row of a tool without commands, for rows KTX_OPTION(name, value, group, reader, field, help).
#define KTX_OPTION_ROW(name, value, group, reader, field, help)   \
  {{name, value, 1, group, decltype(reader)::kForm, help},        \
   [](Options& options, const Given& given, Mistakes& mistakes) { \
     read(reader, given, options.field, mistakes);                \
   }},

}  // namespace ktx::tools
