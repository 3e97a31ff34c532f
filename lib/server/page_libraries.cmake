# The libraries of the page, as distributions package them (tools/dev/packages) or npm installs them:
# KTX_PAGE_LIBRARIES=FOLDER/node_modules. Sets KTX_PAGE_FILES to a list of NAME=FILE. Without marked
# and DOMPurify the page shows answers as plain text, without the others without colours or formulas.
set(KTX_PAGE_LIBRARIES "" CACHE PATH "a node_modules with marked, dompurify, highlight.js, katex")
set(places ${KTX_PAGE_LIBRARIES} /usr/share/javascript /usr/share/nodejs /usr/lib/node_modules)
function(ktx_page_library name file)
  find_file(KTX_PAGE_${name} NAMES ${file} PATHS ${places} PATH_SUFFIXES ${ARGN} NO_DEFAULT_PATH)
  mark_as_advanced(KTX_PAGE_${name})
  if(KTX_PAGE_${name})
    set(KTX_PAGE_FILES ${KTX_PAGE_FILES} "${name}=${KTX_PAGE_${name}}" PARENT_SCOPE)
  else()
    set(missing ${missing} ${name} PARENT_SCOPE)
  endif()
endfunction()
set(KTX_PAGE_FILES)
set(missing)
ktx_page_library(marked "marked.min.js;marked.umd.js" marked marked/lib)
ktx_page_library(dompurify purify.min.js dompurify dompurify/dist)
ktx_page_library(highlight highlight.min.js highlight.js @highlightjs/cdn-assets)
ktx_page_library(katex katex.min.js katex katex/dist)
if(missing)
  list(JOIN missing ", " missing)
  message(STATUS "The page of the server: without ${missing}, so that answers are plainer there "
                 "(tools/dev/setup installs them where the distribution has them; else "
                 "-DKTX_PAGE_LIBRARIES=FOLDER/node_modules)")
endif()
