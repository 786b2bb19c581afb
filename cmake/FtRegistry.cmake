# ft_registry(KIND NAMES a b … KNOWN a b c …)
# A registry is a list of names and one generated table. Each built NAME has a file that defines
#     const struct ft_KIND_ops ft_KIND_NAME;
# The generated ${build}/generated/registry/KIND.c holds
#     const struct ft_KIND_entry ft_KIND_table[] = { {"a", &ft_KIND_a}, …, {"c", 0}, {0, 0} };
# where a NULL ops means: known, but not in this build. The header KIND_registry.h beside the ops declares ft_KIND_entry.
function(ft_registry kind header)
  cmake_parse_arguments(A "" "" "NAMES;KNOWN" ${ARGN})
  set(decl "")
  set(rows "")
  foreach(n IN LISTS A_NAMES)
    string(APPEND decl "extern const struct ft_${kind}_ops ft_${kind}_${n};\n")
    string(APPEND rows "    {\"${n}\", &ft_${kind}_${n}},\n")
  endforeach()
  foreach(n IN LISTS A_KNOWN)
    if(NOT n IN_LIST A_NAMES)
      string(APPEND rows "    {\"${n}\", 0},\n")
    endif()
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/registry/${kind}.c CONTENT
"/* Generated from the list of names in CMake. */
#include \"${header}\"
${decl}
const struct ft_${kind}_entry ft_${kind}_table[] = {
${rows}    {0, 0},
};
" @ONLY)
endfunction()
