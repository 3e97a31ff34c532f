# cmake -DIN=web_ui/index.html -DOUT=web_page_data.cc -P embed_page.cmake
#
# The page as a C++ array, with its styles and scripts in place: <script src="a.js"></script> becomes
# <script>...</script>. One file is one reply, and a browser can open the folder as it stands.
get_filename_component(folder ${IN} DIRECTORY)
file(READ ${IN} page)
string(REGEX MATCHALL "(src|href)=\"[a-z_]+\\.(js|css)\"" links "${page}")
foreach(link ${links})
  string(REGEX REPLACE ".*\"(.*)\"" "\\1" name "${link}")
  file(READ ${folder}/${name} part)
  string(TOLOWER "${part}" lower)
  if(lower MATCHES "</(script|style)")
    message(FATAL_ERROR "${name}: holds the end of its own element")
  endif()
  if(name MATCHES "js$")
    string(REPLACE "<script src=\"${name}\"></script>" "<script>\n${part}</script>" page "${page}")
  else()
    string(REPLACE "<link rel=\"stylesheet\" href=\"${name}\">" "<style>\n${part}</style>" page "${page}")
  endif()
endforeach()
string(HEX "${page}" hex)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
file(WRITE ${OUT} "#include \"lib/server/web_page.h\"\n\nnamespace ktx::server {\n\n\
static const char kPage[] = {${bytes}'\\0'};\n\n\
std::string_view web_page() {\n  return {kPage, sizeof kPage - 1};\n}\n\n}  // namespace ktx::server\n")
