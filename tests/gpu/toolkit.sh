# tests/gpu/toolkit.sh: looks for a CUDA toolkit, for `. tests/gpu/toolkit.sh`. toolkit_find sets
#     include  the directory of cuda_runtime_api.h
#     lib      the directory of the shared runtime, and cudart its file there
# or fails, and `why` says why. The header and the runtime are of one toolkit, never of two. It looks
# in CUDA_HOME alone if that is set. Else it takes the first of these that has both: /usr/local/cuda,
# nvcc's own, conda's, that of a Python package of NVIDIA's, Debian's. GPU_ROOT stands for / in
# tests/gates/gpu.sh, which has a directory for each of them.
arch=$(uname -m)
root=${GPU_ROOT:-}

toolkit_homes() { # a directory a line
    if [ -n "${CUDA_HOME:-}" ]; then
        echo "$CUDA_HOME"
        return
    fi
    ls -d "$root/usr/local/cuda" 2>/dev/null
    ls -dr "$root"/usr/local/cuda-* 2>/dev/null
    nvcc=$(command -v nvcc) && {
        readlink -f "$nvcc" | sed -n 's|/bin/nvcc$||p'
        "$nvcc" --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p' # a script may stand for it
    }
    ls -d "${CONDA_PREFIX:-/nowhere}" "$root"/opt/conda "$root"/opt/miniconda* 2>/dev/null
    for site in $(python3 -c 'import sys; print("\n".join(sys.path))' 2>/dev/null) \
        "$root"/usr/lib/python3/dist-packages "$root"/usr/local/lib/python3*/*-packages; do
        ls -d "$site"/nvidia/cuda_runtime "$site"/nvidia/cu[0-9]* 2>/dev/null
    done
    echo "$root/usr"
}

toolkit_include() { # HOME: where its header is
    for dir in "$1/include" "$1/targets/$arch-linux/include" "$1"/targets/*-linux/include; do
        [ -r "$dir/cuda_runtime_api.h" ] && echo "$dir" && return
    done
    return 1
}

toolkit_cudart() { # HOME: its shared runtime; one without a plain name is a runtime image's or pip's
    for dir in "$1/lib64" "$1/lib" "$1/targets/$arch-linux/lib" "$1"/targets/*-linux/lib \
        "$1/lib/$arch-linux-gnu"; do
        for file in "$dir"/libcudart.so "$dir"/libcudart.so.*; do
            [ -e "$file" ] && echo "$file" && return
        done
    done
    return 1
}

toolkit_find() {
    part=
    while read -r home; do
        include=$(toolkit_include "$home")
        cudart=$(toolkit_cudart "$home")
        if [ -n "$include" ] && [ -n "$cudart" ]; then
            lib=${cudart%/*}
            return 0
        fi
        [ -z "$include$cudart" ] || [ -n "$part" ] || part=$(
            [ -n "$include" ] && echo "$include has the headers of CUDA, and $home no libcudart.so" ||
                echo "$cudart is there, and $home has no cuda_runtime_api.h, as an image for runs has none"
        )
    done <<END
$(toolkit_homes)
END
    why=${part:-"no CUDA toolkit in ${CUDA_HOME:-/usr/local/cuda, nor one of nvcc, conda, Python or Debian}"}
    return 1
}
