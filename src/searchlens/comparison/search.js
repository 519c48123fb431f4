for (const box of document.querySelectorAll(".search")) {
  const every = [...box.parentElement.querySelectorAll(".question")];
  const [input, count] = box.children;
  box.hidden = false;
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase();
    for (const one of every) one.hidden = !one.textContent.toLowerCase().includes(wanted);
    count.textContent = `${every.filter((one) => !one.hidden).length} of ${every.length} questions`;
  });
}
