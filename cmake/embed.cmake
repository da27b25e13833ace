# Writes the texts that emission needs (templates, kernels, run time) as one C++ source, so that the installed command
# needs no source tree.
#   cmake -DROOT=... -DLIST=... -DOUTPUT=... -P embed.cmake
file(STRINGS ${LIST} FILES)
string(CONCAT TEXT
       "// Generated from templates/, the targets' templates, kernels/ and runtime_min/.\n"
       "#include \"codegen/emit/embedded.h\"\n\n"
       "namespace graven::codegen {\n\n"
       "using namespace std::literals;\n\n"
       "static constexpr EmbeddedFile kFiles[] = {\n")
foreach(name IN LISTS FILES)
  file(READ ${ROOT}/${name} content)
  string(APPEND TEXT "    {\"${name}\"sv, R\"graven_text(${content})graven_text\"sv},\n")
endforeach()
string(APPEND TEXT
       "};\n\nstd::span<const EmbeddedFile> embedded_files() { return kFiles; }\n\n}  // namespace graven::codegen\n")
file(WRITE ${OUTPUT} "${TEXT}")
